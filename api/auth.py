"""Who is calling: anybody on loopback, by key everywhere else. Only the key determines the tenant."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.http.problems import Unauthenticated, Unreadable
from api.services import Services, services_of
from domain.errors import NotAllowed, TooMany
from domain.policy.addresses import is_loopback
from settings import Settings
from store import keys
from store.database import Pool
from store.keys import Right

DEFAULT_TENANT = "default"


@dataclass(frozen=True)
class Caller:
    tenant: str
    rights: frozenset[Right]
    key_id: str | None = None
    name: str = "anonymous"

    @property
    def created_by(self) -> str:
        return self.key_id or self.name

    def may(self, *rights: Right) -> bool:
        return Right.ADMIN in self.rights or bool(self.rights.intersection(rights))


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


async def identify(headers: Mapping[str, list[str]], pool: Pool, *, open: bool, per_minute: int) -> Caller:
    """The caller of a request; a header that was sent must be valid, also where none is needed."""
    sent = headers.get("authorization", [])
    if not sent:
        if not open:
            raise Unauthenticated()
        _same_site(headers)
        return ANONYMOUS
    scheme, _, presented = sent[0].partition(" ")
    if len(sent) > 1 or scheme.lower() != "bearer":
        raise Unauthenticated()
    used = await keys.use(pool, presented.strip(), per_minute)
    if used is None:
        raise Unauthenticated()
    if used.wait > 0:
        detail = f"This key may send {per_minute} requests per minute."
        raise TooMany(detail, retry_after=math.ceil(used.wait))
    return Caller(used.tenant, frozenset(used.rights), used.id, used.name)


def _same_site(headers: Mapping[str, list[str]]) -> None:
    """Without keys, a web page elsewhere must not act through its visitor's browser, by whatever name it finds us."""
    for name in headers.get("host", []):
        if not is_loopback(urlsplit(f"//{name}").hostname or ""):
            raise Unreadable(400, "bad-request", "Without a key, the Host must be a loopback address.")
    for origin in headers.get("origin", []):
        if not is_loopback(urlsplit(origin).hostname or ""):
            raise NotAllowed("Without a key, pages of other sites may not call this address.")


_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="key",
    bearerFormat="ek_<id>_<secret>",
    description="A key made with `errand keys create`. On loopback no key is needed.",
)


def needs(*rights: Right) -> Call:
    """A dependency: the call, if its caller has one of these rights."""

    async def check(
        request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None
    ) -> Call:
        caller: Caller = request.state.caller
        if rights and not caller.may(*rights):
            raise NotAllowed(f"This needs a key with the right {' or '.join(rights)}.", needed=list(rights))
        return Call(services_of(request), caller)

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
