"""Identifies the caller: the account that runs the server, on its own machine, or the holder of a key, who has a
tenant."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hmac import compare_digest
from typing import Annotated, Any

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.http import console_cookie
from api.http.console_cookie import ConsoleCookie
from api.http.failed_keys import FailedKeys
from api.http.local_access import check_local, is_local, is_local_token
from api.http.problems import Unauthenticated
from api.services import Services, services_of
from domain.errors import NotAllowed, TooMany
from settings import Settings
from store import keys
from store.database import Pool
from store.keys import Right, Used

DEFAULT_TENANT = "default"


@dataclass(frozen=True)
class Caller:
    tenant: str
    rights: frozenset[Right]
    key_id: str | None = None
    name: str = "anonymous"
    cookie_id: str | None = None  # the console's cookie that the caller presented

    @property
    def created_by(self) -> str:
        return self.key_id or self.name

    def may(self, *rights: Right) -> bool:
        # an administrator may do everything, so that routes never need to list this right
        return Right.ADMIN in self.rights or bool(self.rights.intersection(rights))


# all rights, because the account that runs the server could change the database anyway
ANONYMOUS = Caller(DEFAULT_TENANT, frozenset(Right))


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


async def identify(
    scope: Mapping[str, Any], headers: Mapping[str, list[str]], services: Services, failed: FailedKeys
) -> Caller:
    """The caller of a request. A header that was sent must be valid, even if none is needed."""
    settings, sent = services.settings, headers.get("authorization", [])
    local = is_local(scope, settings)
    if not sent:
        if "cookie" in headers and (cookie := console_cookie.read(services.keys, headers)) is not None:
            caller = await _by_cookie(cookie, services, scope, headers)
            if caller is not None:
                # A WebSocket has no method, and a browser lets a page read what it receives from another origin.
                console_cookie.check_same_site(scope.get("method", ""), headers)
                return caller
        # a cookie that is expired or of a revoked key counts as none: on the server's own machine the console still
        # works
        if not local:
            raise Unauthenticated()
        check_local(scope, headers, token=False)
        return ANONYMOUS
    scheme, _, presented = sent[0].partition(" ")
    presented = presented.strip()
    # with two headers, a proxy might have checked the other one
    if len(sent) > 1 or scheme.lower() != "bearer":
        raise Unauthenticated()
    if local and is_local_token(presented, settings):
        check_local(scope, headers, token=True)
        return ANONYMOUS
    address = (scope.get("client") or ("", 0))[0]
    # before the lookup, so that guessing costs the database nothing
    failed.check(address, presented)
    used = await keys.use(services.pool, presented, settings.requests_per_minute)
    if used is None:
        # only now, because an unreachable database raises an error and must not lock out valid keys
        failed.failed(address)
        raise Unauthenticated()
    failed.succeeded(presented)
    return _caller(used, settings)


async def _by_cookie(
    cookie: ConsoleCookie, services: Services, scope: Mapping[str, Any], headers: Mapping[str, list[str]]
) -> Caller | None:
    """The caller who signed in at the console; None if it was signed out, or its key is not valid any more."""
    settings = services.settings
    if await keys.is_signed_out(services.pool, cookie.id):
        return None
    if cookie.key_id == console_cookie.LOCAL:
        token = settings.local_token
        # the digest too: after a restart with another token, cookies of the old one must not work
        if not is_local(scope, settings) or not token or not compare_digest(cookie.digest, keys.digest_of(token)):
            return None
        check_local(scope, headers, token=True)
        return replace(ANONYMOUS, cookie_id=cookie.id)
    used = await keys.use_digest(services.pool, cookie.key_id, cookie.digest, settings.requests_per_minute)
    return replace(_caller(used, settings), cookie_id=cookie.id) if used else None


def _caller(used: Used, settings: Settings) -> Caller:
    if used.wait > 0:
        detail = f"This key may send {settings.requests_per_minute} requests per minute."
        raise TooMany(detail, retry_after=math.ceil(used.wait))
    return Caller(used.tenant, frozenset(used.rights), used.id, used.name)


_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="key",
    bearerFormat="ek_<id>_<secret>",
    description="A key made with `errand keys create`. The account that runs the server needs none on its own machine.",
)


def needs(*rights: Right) -> Call:
    """A dependency: the call, if its caller has one of these rights."""

    async def check(
        request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None
    ) -> Call:
        # the middleware has identified the caller; `_bearer` is here only for the OpenAPI document
        call = Call(services_of(request), request.state.caller)
        call.check_rights(*rights)
        return call

    dependency: Call = Security(check)
    return dependency


Reader = Annotated[Call, needs(Right.READ)]
Submitter = Annotated[Call, needs(Right.SUBMIT)]
Stopper = Annotated[Call, needs(Right.SUBMIT, Right.SUPERVISE)]
Answerer = Annotated[Call, needs(Right.ANSWER, Right.APPROVE, Right.SUPERVISE)]
Auditor = Annotated[Call, needs(Right.SUPERVISE)]
Viewer = Annotated[Call, needs(Right.READ, Right.SUBMIT)]
Admin = Annotated[Call, needs(Right.ADMIN)]
Anyone = Annotated[Call, needs()]
