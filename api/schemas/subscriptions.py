"""The check of a subscription's target."""

import re
import socket
from typing import Any
from urllib.parse import urlsplit

from api.http.problems import finding
from domain.errors import Invalid
from domain.notifications import ChannelName
from domain.policy.addresses import public
from settings import Settings

LONGEST_URL = 2_048
_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
_URL = re.compile(r"[!-~]+")  # international names are written as xn--…
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*|[0-9a-f:.]+")
_LOCAL = ("localhost", "local", "internal", "localdomain", "home.arpa")


def check_target(channel: ChannelName, target: str, settings: Settings) -> None:
    """Check the form of a target and its literal address. The address of a name is checked at each delivery."""
    if channel is ChannelName.EMAIL:
        if not settings.smtp_host:
            raise _refused(
                "/channel", "not_available", "no mail server is set", [c for c in ChannelName if c is not channel]
            )
        if not _EMAIL.fullmatch(target) or len(target) > 254:
            raise _refused("/target", "invalid_address", "must be one e-mail address", ["name@example.org"])
        return
    try:
        url = urlsplit(target)
        host, port = (url.hostname or "").rstrip("."), url.port or {"http": 80}.get(url.scheme, 443)
    except ValueError:
        raise _refused("/target", "invalid_url", "must be a URL", ["https://host/path"]) from None
    entries = {entry.lower() for entry in settings.notify_private_hosts}
    trusted = host in entries or f"{host}:{port}" in entries
    formed = _URL.fullmatch(target) and _HOST.fullmatch(host) and url.port != 0
    # plain HTTP only to hosts of the operator: a delivery contains the content of tasks
    if not formed or url.scheme not in (("http", "https") if trusted else ("https",)):
        raise _refused("/target", "invalid_url", "must be an https:// URL with a host", ["https://host/path"])
    # a password in the URL would appear in the records of deliveries and in logs
    if url.username is not None or url.password is not None or url.fragment or len(target) > LONGEST_URL:
        rule = f"no user name, no fragment, at most {LONGEST_URL} characters"
        raise _refused("/target", "invalid_url", rule, ["https://host/path"])
    if not trusted and _private(host):
        raise _refused("/target", "private_address", "private addresses are not notified", ["a public host"])


def _private(host: str) -> bool:
    if host in _LOCAL or host.endswith(tuple(f".{name}" for name in _LOCAL)):
        return True
    try:  # no lookup: this finds only addresses, in any notation such as 127.1 or 0x7f000001
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return not all(public(str(address[0])) for *_, address in found)


def _refused(pointer: str, code: str, message: str, allowed: list[Any]) -> Invalid:
    return Invalid(
        "This cannot be subscribed to.", type="invalid-target", errors=[finding(pointer, code, message, allowed)]
    )
