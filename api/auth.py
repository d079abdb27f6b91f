"""Who is calling: open on loopback, by key everywhere else; the tenant comes from the key and from nowhere else."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.http.problems import Unauthenticated, Unreadable
from domain.errors import NotAllowed, TooMany
from domain.policy.addresses import is_loopback
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


def needs(*rights: Right) -> Caller:
    """A dependency: the caller, who has one of these rights."""

    async def check(
        request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None
    ) -> Caller:
        caller: Caller = request.state.caller
        if rights and not caller.may(*rights):
            raise NotAllowed(f"This needs a key with the right {' or '.join(rights)}.", needed=list(rights))
        return caller

    dependency: Caller = Security(check)
    return dependency


Reader = Annotated[Caller, needs(Right.READ)]
Submitter = Annotated[Caller, needs(Right.SUBMIT)]
Stopper = Annotated[Caller, needs(Right.SUBMIT, Right.SUPERVISE)]
Answerer = Annotated[Caller, needs(Right.ANSWER, Right.APPROVE, Right.SUPERVISE)]
Auditor = Annotated[Caller, needs(Right.SUPERVISE)]
Viewer = Annotated[Caller, needs(Right.READ, Right.SUBMIT)]
Admin = Annotated[Caller, needs(Right.ADMIN)]
Anyone = Annotated[Caller, needs()]
