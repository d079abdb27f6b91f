"""Requests without a key: only the account that runs the API may send them, from this machine and not from a web page.

The accepted connection decides, not a setting: a server that listens on every address, or a proxy on the same machine,
must not make everybody an administrator.
"""

import os
import re
import socket
import struct
import sys
from collections.abc import Mapping
from hmac import compare_digest
from typing import Any
from urllib.parse import urlsplit

from api.http.problems import Unauthenticated, Unreadable
from domain.errors import NotAllowed
from domain.policy.addresses import is_loopback
from settings import Settings

# headers of proxies: the standard one, and the names that products have made up for the address of their client
_FORWARDED = re.compile(r"via|.*forwarded.*|.*-(?:client|connecting|real|user|proxyuser)-ip|x-envoy-.*|x-original-.*")

# constants of Linux's sock_diag interface
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_ESTABLISHED = 1

Address = tuple[str, int]


def is_local(scope: Mapping[str, Any], settings: Settings) -> bool:
    """Whether this connection may come without a key: both of its ends are loopback addresses."""
    ends = (scope.get("server"), scope.get("client"))
    return (
        not settings.require_keys
        and is_loopback(settings.host)
        and all(end is not None and is_loopback(end[0]) for end in ends)
    )


def is_local_token(presented: str, settings: Settings) -> bool:
    # in constant time, because other accounts of this machine can measure how long a comparison takes
    return settings.local_token is not None and compare_digest(presented.encode(), settings.local_token.encode())


def check_local(scope: Mapping[str, Any], headers: Mapping[str, list[str]], *, token: bool) -> None:
    """Refuse requests of a proxy or a web page, and of other accounts of this machine unless they have the token."""
    if any(map(_FORWARDED.fullmatch, headers)) or scope.get("http_version") == "1.0":  # which only proxies still speak
        raise Unauthenticated("A request that a proxy forwards needs a key.")
    host = headers["host"][0]
    # DNS rebinding: a foreign name that resolves to this machine
    if not is_loopback(urlsplit(f"//{host}").hostname or ""):
        raise Unreadable(400, "bad-request", "Without a key, the Host must be a loopback address.")
    if any(urlsplit(origin).netloc != host for origin in headers.get("origin", [])):
        raise NotAllowed("Without a key, pages of other sites may not call this address.")
    if not token and _owner_of_peer(scope["server"], scope["client"]) not in (os.geteuid(), 0):
        raise Unauthenticated("Only the account that runs this server needs no key; `errand token` prints its token.")


def _owner_of_peer(server: Address, client: Address) -> int | None:
    """The account of the process at the other end of a connection on this machine; None if unknown."""
    if sys.platform != "linux":
        return None
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    source, target = (socket.inet_pton(family, address).ljust(16, b"\0") for address in (client[0], server[0]))
    ends = struct.pack("!HH16s16s", client[1], server[1], source, target) + struct.pack("=I8s", 0, b"\xff" * 8)
    body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ends
    head = struct.pack("=IHHII", 16 + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
            netlink.settimeout(1)  # the kernel replies at once
            netlink.sendto(head + body, (0, 0))
            reply = netlink.recv(4096)
    except OSError:
        return None
    if struct.unpack_from("=IH", reply)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    state: int = reply[17]
    uid, inode = struct.unpack_from("=II", reply, 16 + 4 + 48 + 12)
    # The kernel reports account 0 for a closed socket: anybody could send a request and hang up.
    return uid if state == _ESTABLISHED and inode else None
