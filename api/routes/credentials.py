"""/credentials: secrets that are used for tasks and never shown again, of the tenant or of a user, who holds a key."""

from typing import Annotated, Any, Literal

from errand import models
from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import Field

from api.http.auth import Reader, Submitter
from api.http.body import json_body
from api.http.paging import Parameters
from api.openapi import problems
from api.submission.rules import find_without_tls
from domain.credentials import TENANT, CredentialName, CredentialSpec, OwnedRules, name_user
from domain.errors import Conflict, Invalid, NotFound
from store import credentials
from store.keys import Right

router = APIRouter(tags=["environments"])
MOST = 200  # of one owner
_EXAMPLE: dict[str, Any] = {
    "secret": "github_pat_0123456789",
    "hosts": ["github.com", "api.github.com"],
    "access": "write",
}


class ScopeQuery(Parameters):
    scope: Literal["tenant", "user"] = Field(
        default="tenant",
        description="tenant: for all tasks, by an administrator; user: for the tasks of your key alone",
    )


async def _choose_owner(call: Submitter, query: Annotated[ScopeQuery, Query()]) -> str:
    if query.scope == "tenant":
        call.check_rights(Right.ADMIN)
        return TENANT
    if call.caller.key_id is None:  # every key may act on the tasks of the account
        raise Conflict("The account that runs the server has no credentials of its own: use a key.", type="no-key")
    return name_user(call.caller.key_id)


Owner = Annotated[str, Depends(_choose_owner)]


@router.get("/credentials", summary="List the credentials")
async def list_credentials(call: Reader) -> models.CredentialPage:
    """The tenant's, and those of your key."""
    owners = [name_user(call.caller.created_by), TENANT]
    found = await credentials.list_all(call.pool, call.tenant, owners)
    return models.CredentialPage(items=[_show(one) for one in found])


@router.put(
    "/credentials/{credential}",
    response_model=models.Credential,
    responses={**problems(409), 201: {"description": "A new credential", "model": models.Credential}},
    summary="Store a credential",
)
async def put_credential(
    call: Submitter,
    owner: Owner,
    credential: Annotated[CredentialName, Path()],
    body: Annotated[CredentialSpec, json_body(CredentialSpec, example=_EXAMPLE)],
    response: Response,
) -> models.Credential:
    """Tasks that run use the new secret with their next request."""
    if problems := find_without_tls(call, body):
        raise Invalid("The host has no TLS.", errors=problems)
    known = {one.name for one in await credentials.list_all(call.pool, call.tenant, [owner])}
    if credential not in known and len(known) >= MOST:
        raise Conflict(f"There are {MOST} credentials, as many as there may be.", type="quota-exceeded")
    sealed = credentials.seal(call.services.keys, call.tenant, owner, credential, body)
    new = await credentials.put(call.pool, call.tenant, sealed, call.caller.created_by)
    response.status_code = 201 if new else 200
    return _show(OwnedRules(owner=owner, name=credential, rules=body.rules()))


@router.delete(
    "/credentials/{credential}", status_code=204, responses=problems(409, 422), summary="Remove a credential"
)
async def remove_credential(call: Submitter, owner: Owner, credential: str) -> Response:
    """Requests of tasks that run do not get it any more."""
    if not (credential.isascii() and credential.isprintable()) or not await credentials.remove(
        call.pool, call.tenant, owner, credential, call.caller.created_by
    ):
        raise NotFound("There is no such credential.")
    return Response(status_code=204)


def _show(one: OwnedRules) -> models.Credential:
    scope = "tenant" if one.owner == TENANT else "user"
    return models.Credential(name=one.name, scope=scope, **one.rules.model_dump())
