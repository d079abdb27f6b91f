"""What may be subscribed to and named in a task; each refusal says what would be allowed."""

import re
import socket
from typing import Any
from urllib.parse import urlsplit

from api.http.problems import finding
from domain.errors import Invalid
from domain.notification import ChannelName, SubscriptionStatus
from domain.policy.addresses import public
from domain.task import TaskConfig
from settings import Settings
from store import subscriptions
from store.database import Pool

LONGEST_URL = 2_048
_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
_URL = re.compile(r"[!-~]+")  # other letters in a name are written as xn--…
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*|[0-9a-f:.]+")
_LOCAL = ("localhost", "local", "internal", "localdomain", "home.arpa")


def check_target(channel: ChannelName, target: str, settings: Settings) -> None:
    """By its form and its literal address; where a name leads is looked at whenever something is sent."""
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
    if not formed or url.scheme not in (("http", "https") if trusted else ("https",)):
        raise _refused("/target", "invalid_url", "must be an https:// URL with a host", ["https://host/path"])
    if url.username is not None or url.password is not None or url.fragment or len(target) > LONGEST_URL:
        rule = f"no user name, no fragment, at most {LONGEST_URL} characters"
        raise _refused("/target", "invalid_url", rule, ["https://host/path"])
    if not trusted and _private(host):
        raise _refused("/target", "private_address", "private addresses are not told anything", ["a public host"])


def _private(host: str) -> bool:
    if host in _LOCAL or host.endswith(tuple(f".{name}" for name in _LOCAL)):
        return True
    try:  # asks no server: only what is an address in some notation, such as 127.1 or 0x7f000001, is found
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return not all(public(str(address[0])) for *_, address in found)


def _refused(pointer: str, code: str, message: str, allowed: list[Any]) -> Invalid:
    return Invalid(
        "This cannot be subscribed to.", type="invalid-target", errors=[finding(pointer, code, message, allowed)]
    )


async def check_notify(pool: Pool, tenant: str, config: TaskConfig, ttl_ms: int) -> None:
    """Who is to be told of a task must exist, and be told while it still matters."""
    bound = config.input_timeout or min(ttl_ms, (config.tree and config.tree.ttl) or ttl_ms)
    for name in ("reminder_after", "escalate_after"):
        after = getattr(config, name)
        if after is not None and after >= bound:
            late = finding(f"/config/{name}", "out_of_range", "nobody would wait any more", [f"1000..{bound - 1}"])
            raise Invalid("A reminder would come too late.", errors=[late])
    if bool(config.escalate_to) is (config.escalate_after is None):
        pair = ["escalate_to", "escalate_after"]
        half = finding(f"/config/{pair[not config.escalate_to]}", "needs", "one needs the other", pair)
        raise Invalid("An escalation needs a time and somebody to turn to.", errors=[half])
    if config.notify or config.routes or config.escalate_to:
        await _check_names(pool, tenant, config)


async def _check_names(pool: Pool, tenant: str, config: TaskConfig) -> None:
    active = [one for one in await subscriptions.listing(pool, tenant) if one.status is SubscriptionStatus.ACTIVE]
    names = sorted(one.name for one in active)
    known = [*names, *sorted({one.channel.value for one in active})]
    errors = [
        finding(f"/config/notify/{place}", "unknown_channel", "there is no such subscription or channel", known)
        for place, wanted in enumerate(config.notify)
        if wanted not in known
    ]
    errors += [
        finding(f"/config/routes/{kind}", "unknown_channel", "there is no such subscription or channel", known)
        for kind, wanted in config.routes.items()
        if wanted not in known
    ]
    second = config.escalate_to or {}
    errors += [
        finding(f"/config/escalate_to{place}", "unknown_channel", "there is no such subscription", names)
        for place, wanted in ([("", second)] if isinstance(second, str) else ((f"/{k}", v) for k, v in second.items()))
        if wanted not in names
    ]
    if errors:
        raise Invalid("The task names somebody to be told whom nobody knows.", errors=errors)
