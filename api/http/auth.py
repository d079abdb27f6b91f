"""Who calls: the account that runs the server, on its own machine, or the holder of a key, who has a tenant.

`identify` finds the caller for the middleware; `needs` gives a route its `Call`, if the caller has the right. Below
are requests without a key, and the console's cookie.
"""

import base64
import binascii
import functools
import hashlib
import math
import os
import pwd
import re
import socket
import struct
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from fastapi import Depends, Request, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ValidationError

from api.http.body import choose_media_type, services_of
from api.http.problems import Unauthenticated, Unreadable
from api.services import Services
from domain.errors import NotAllowed, TooMany
from domain.ids import new_id
from domain.redaction import is_sealed
from domain.sealing import KeyRing, SealingError
from settings import Settings
from store import keys
from store.database import Pool
from store.keys import Right, Used

DEFAULT_TENANT = "default"
MOST_FAILURES = 60  # per address and minute
FAILURE_SECONDS = 60.0
# an attacker with many addresses must not fill the memory; the oldest are forgotten first
MOST_ADDRESSES = 10_000
MOST_KEYS = 10_000
COOKIE_NAME = "errand_console"
COOKIE_SECONDS = 12 * 3_600
LOCAL_KEY = "local"  # instead of a key's id: the token of the account that runs the server
# binds the encryption, so that another encrypted value of this server is no cookie
_COOKIE_CONTEXT = "console cookie"
_LONGEST_COOKIE = 1_000
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# headers of proxies: the standard one, and the names that products have made up for the address of their client
_FORWARDED = re.compile(r"via|.*forwarded.*|.*-(?:client|connecting|real|user|proxyuser)-ip|x-envoy-.*|x-original-.*")
# constants of Linux's sock_diag interface
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_ESTABLISHED = 1
Address = tuple[str, int]


@dataclass(frozen=True)
class Caller:
    tenant: str
    rights: frozenset[Right]
    key_id: str | None = None
    name: str = ""
    account: str = ""  # of this machine, if there is no key
    cookie_id: str | None = None  # the console's cookie that the caller presented

    @property
    def created_by(self) -> str:
        return self.key_id or self.account or self.name

    def may(self, *rights: Right) -> bool:
        # an administrator may do everything, so that routes never need to list this right
        return Right.ADMIN in self.rights or bool(self.rights.intersection(rights))


OF_ACCOUNT = "account "  # before an account of this machine, in a list that otherwise has ids of keys


def account_caller(uid: int) -> Caller:
    """The caller without a key: a person with an account of this machine. All rights, because the account that runs the
    server could change the database anyway."""
    name = _account_name(uid)
    return Caller(DEFAULT_TENANT, frozenset(Right), name=name, account=OF_ACCOUNT + name)


@functools.lru_cache(maxsize=1_000)
def _account_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@dataclass(frozen=True)
class Call:
    """One request to the API: the authenticated caller, and the services that answer it."""

    services: Services
    caller: Caller

    @property
    def tenant(self) -> str:
        return self.caller.tenant

    @property
    def pool(self) -> Pool:
        return self.services.pool

    @property
    def settings(self) -> Settings:
        return self.services.settings

    def check_rights(self, *rights: Right) -> None:
        """Refuse a caller who has none of these rights; without any rights given, everybody passes."""
        if rights and not self.caller.may(*rights):
            raise NotAllowed(f"This needs a key with the right {' or '.join(rights)}.", needed=list(rights))


class ConsoleCookie(BaseModel):
    id: str
    key_id: str
    digest: str  # digest of the key's secret, or of the token
    expires: int


class FailedKeys:
    """Invalid keys by the address that they came from."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()  # address -> begin of its window, count
        self._valid: OrderedDict[bytes, None] = OrderedDict()

    def check(self, address: str, key: str) -> None:
        """Refuse an address that failed too often. Keys that were valid before still pass, because others may share the
        address."""
        began, count = self._failures.get(address, (0.0, 0))
        left = began + FAILURE_SECONDS - time.monotonic()
        if count >= MOST_FAILURES and left > 0 and _digest_of_key(key) not in self._valid:
            raise TooMany("Too many invalid keys came from this address.", retry_after=math.ceil(left))

    def note_failure(self, address: str) -> None:
        now = time.monotonic()
        # popped and put back, so that the address moves to the end of the order
        began, count = self._failures.pop(address, (now, 0))
        self._failures[address] = (began, count + 1) if now < began + FAILURE_SECONDS else (now, 1)
        if len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)

    def note_success(self, key: str) -> None:
        digest = _digest_of_key(key)
        self._valid[digest] = None
        self._valid.move_to_end(digest)
        if len(self._valid) > MOST_KEYS:
            self._valid.popitem(last=False)


def _digest_of_key(key: str) -> bytes:
    # digests, so that no dump of this process's memory shows keys from here
    return hashlib.sha256(key.encode(errors="replace")).digest()


async def identify(
    scope: Mapping[str, Any], headers: Mapping[str, list[str]], services: Services, failed: FailedKeys
) -> Caller:
    """The caller of a request. A header that was sent must be valid, even if none is needed."""
    settings, sent = services.settings, headers.get("authorization", [])
    local = is_local(scope, settings)
    if not sent:
        if "cookie" in headers and (cookie := read_cookie(services.keys, headers)) is not None:
            caller = await _by_cookie(cookie, services, scope, headers)
            if caller is not None:
                # A WebSocket has no method, and a browser lets a page read what it receives from another origin.
                check_same_site(scope.get("method", ""), headers)
                return caller
        # a cookie that is expired or of a revoked key counts as none: on the server's own machine the console still
        # works
        if not local:
            raise Unauthenticated()
        return local_caller(scope, headers, token=False)
    scheme, _, presented = sent[0].partition(" ")
    presented = presented.strip()
    # with two headers, a proxy might have checked the other one
    if len(sent) > 1 or scheme.lower() != "bearer":
        raise Unauthenticated()
    # in constant time, because other accounts of this machine can measure how long a comparison takes
    if local and settings.local_token and compare_digest(presented.encode(), settings.local_token.encode()):
        return local_caller(scope, headers, token=True)
    address = (scope.get("client") or ("", 0))[0]
    # before the lookup, so that guessing costs the database nothing
    failed.check(address, presented)
    used = await keys.use(services.pool, presented, settings.requests_per_minute)
    if used is None:
        # only now, because an unreachable database raises an error and must not lock out valid keys
        failed.note_failure(address)
        raise Unauthenticated()
    failed.note_success(presented)
    return _caller(used, settings)


async def _by_cookie(
    cookie: ConsoleCookie, services: Services, scope: Mapping[str, Any], headers: Mapping[str, list[str]]
) -> Caller | None:
    """The caller who signed in at the console; None if it was signed out, or its key is not valid any more."""
    settings = services.settings
    if await keys.is_signed_out(services.pool, cookie.id):
        return None
    if cookie.key_id == LOCAL_KEY:
        token = settings.local_token
        # the digest too: after a restart with another token, cookies of the old one must not work
        if not is_local(scope, settings) or not token or not compare_digest(cookie.digest, keys.digest_of(token)):
            return None
        return replace(local_caller(scope, headers, token=True), cookie_id=cookie.id)
    used = await keys.use_digest(services.pool, cookie.key_id, cookie.digest, settings.requests_per_minute)
    return replace(_caller(used, settings), cookie_id=cookie.id) if used else None


def _caller(used: Used, settings: Settings) -> Caller:
    if used.wait > 0:
        detail = f"This key may send {settings.requests_per_minute} requests per minute."
        raise TooMany(detail, retry_after=math.ceil(used.wait))
    return Caller(used.tenant, frozenset(used.rights), used.id, used.name)


async def _give_services(request: Request) -> Services:
    # a coroutine, because FastAPI runs plain functions in a thread
    return services_of(request)


ServicesDep = Annotated[Services, Depends(_give_services)]

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="key",
    bearerFormat="ek_<id>_<secret>",
    description="A key made with `errand keys create`. The account that runs the server needs none on its own machine.",
)


def needs(*rights: Right) -> Call:
    """A dependency: the call, if its caller has one of these rights, and accepts the form of the response. A route with
    other forms than JSON looks at that itself."""

    async def check(
        request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None
    ) -> Call:
        # the middleware has identified the caller; `_bearer` is here only for the OpenAPI document
        call = Call(services_of(request), request.state.caller)
        call.check_rights(*rights)
        route: APIRoute = request.scope["route"]
        if route.include_in_schema and "content" not in route.responses.get(200, {}):
            choose_media_type(request, "application/json")
        return call

    dependency: Call = Security(check)
    return dependency


Reader = Annotated[Call, needs(Right.READ)]
Submitter = Annotated[Call, needs(Right.SUBMIT)]
Stopper = Annotated[Call, needs(Right.SUBMIT, Right.SUPERVISE)]
Answerer = Annotated[Call, needs(Right.ANSWER, Right.APPROVE, Right.SUPERVISE)]
Supervisor = Annotated[Call, needs(Right.SUPERVISE)]
Viewer = Annotated[Call, needs(Right.READ, Right.SUBMIT)]
Admin = Annotated[Call, needs(Right.ADMIN)]
Anyone = Annotated[Call, needs()]


# Requests without a key: only the account that runs the API may send them, from this machine and not from a web page.
# The accepted connection decides, not a setting: a server that listens on every address, or a proxy on the same
# machine, must not make everybody an administrator.


def is_local(scope: Mapping[str, Any], settings: Settings) -> bool:
    """Whether this connection may come without a key: both of its ends are loopback addresses."""
    ends = (scope.get("server"), scope.get("client"))
    return (
        not settings.require_keys
        and is_loopback(settings.host)
        and all(end is not None and is_loopback(end[0]) for end in ends)
    )


def is_loopback(host: str) -> bool:
    """Whether a host name or address, with or without brackets, is this machine itself."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def local_caller(scope: Mapping[str, Any], headers: Mapping[str, list[str]], *, token: bool) -> Caller:
    """The person at the other end of a connection on this machine. Refuses requests of a proxy or a web page, and of
    other accounts of this machine unless they have the token."""
    if any(map(_FORWARDED.fullmatch, headers)) or scope.get("http_version") == "1.0":  # which only proxies still speak
        raise Unauthenticated("A request that a proxy forwards needs a key.")
    host = headers["host"][0]
    # DNS rebinding: a foreign name that resolves to this machine
    if not is_loopback(_split(f"//{host}").hostname or ""):
        raise Unreadable(400, "bad-request", "Without a key, the Host must be a loopback address.")
    if any(_split(origin).netloc != host for origin in headers.get("origin", [])):
        raise NotAllowed("Without a key, pages of other sites may not call this address.")
    owner = _owner_of_peer(scope["server"], scope["client"])
    if not token and owner not in (os.geteuid(), 0):
        raise Unauthenticated(
            "Only the account that runs this server needs no key; the file token in its data directory has one."
        )
    return account_caller(os.geteuid() if owner is None else owner)  # only Linux says whose connection it is


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:  # such as a bracket without its other one
        return urlsplit("")


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


# The console's sign-in cookie: an encrypted reference to a key, which expires after a while. It holds the digest by
# which the database finds the key, not the key's secret. No process keeps state: when a key is revoked, or a cookie
# signed out, the database says so to all of them.


def issue_cookie(ring: KeyRing, key_id: str, digest: str) -> str:
    """The value of a new cookie. Raises Conflict if the server has no key to encrypt it with."""
    cookie = ConsoleCookie(id=new_id(), key_id=key_id, digest=digest, expires=int(time.time()) + COOKIE_SECONDS)
    return base64.urlsafe_b64encode(ring.seal(cookie.model_dump_json(), _COOKIE_CONTEXT).encode()).decode()


def read_cookie(ring: KeyRing, headers: Mapping[str, list[str]]) -> ConsoleCookie | None:
    """The cookie of a request; None if it is missing, expired, or was not made by this server."""
    try:
        found = SimpleCookie("; ".join(headers.get("cookie", []))).get(COOKIE_NAME)
        if found is None or len(found.value) > _LONGEST_COOKIE:
            return None
        sealed = base64.b64decode(found.value, altchars=b"-_", validate=True).decode()
        if not is_sealed(sealed):
            return None
        cookie = ConsoleCookie.model_validate_json(ring.unseal(sealed, _COOKIE_CONTEXT))
    except (CookieError, binascii.Error, UnicodeError, SealingError, ValidationError):
        return None
    return cookie if cookie.expires > time.time() else None


def check_same_site(method: str, headers: Mapping[str, list[str]]) -> None:
    """Refuse a change that a page of another site requests, because a browser adds the cookie to every request."""
    # browsers set sec-fetch-site themselves, and a page cannot change it
    if method in _SAFE_METHODS or headers.get("sec-fetch-site") == ["same-origin"]:
        return
    origins = headers.get("origin", [])
    if len(origins) != 1 or _split(origins[0]).netloc != headers["host"][0]:
        raise NotAllowed("With the console's cookie, only pages of this address may change anything.")
