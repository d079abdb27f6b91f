"""/credentials: secrets that are used for tasks and never shown again. Changes need the right admin."""

from typing import Annotated, Any

from errand import models
from fastapi import APIRouter, Depends, Path, Response

from api.http.auth import Admin, Reader
from api.http.body import accepts_json, json_body
from api.http.problems import finding
from api.openapi import BODY, problems, ref, request_body
from domain.credentials import CredentialName, CredentialRules, CredentialSpec
from domain.errors import Conflict, Invalid, NotFound
from store import credentials

router = APIRouter(tags=["environments"], dependencies=[Depends(accepts_json)])
MOST = 200  # of one tenant
_EXAMPLE: dict[str, Any] = {
    "secret": "github_pat_0123456789",
    "hosts": ["github.com", "api.github.com"],
    "access": "write",
}


@router.get("/credentials", responses=problems(), summary="List the credentials")
async def list_credentials(call: Reader) -> models.CredentialPage:
    found = await credentials.list_all(call.pool, call.tenant)
    return models.CredentialPage(items=[_show(name, rules) for name, rules in found.items()])


@router.put(
    "/credentials/{credential}",
    response_model=models.Credential,
    responses={**problems(409, *BODY), 201: {"description": "A new credential", "model": models.Credential}},
    openapi_extra=request_body({"application/json": {"schema": ref(CredentialSpec), "example": _EXAMPLE}}),
    summary="Store a credential",
)
async def put_credential(
    call: Admin,
    credential: Annotated[CredentialName, Path()],
    body: Annotated[CredentialSpec, json_body(CredentialSpec)],
    response: Response,
) -> models.Credential:
    """Tasks that run use the new secret with their next request."""
    allowed = [f"http://{place}" for place in call.services.settings.allow_private_hosts]
    for index, host in enumerate(body.hosts):
        if host.startswith("http://") and host not in allowed:
            said = "a credential travels over TLS, but to hosts that the operator names in ERRAND_ALLOW_PRIVATE_HOSTS"
            raise Invalid("The host has no TLS.", errors=[finding(f"/hosts/{index}", "no_tls", said)])
    known = await credentials.list_all(call.pool, call.tenant)
    if credential not in known and len(known) >= MOST:
        raise Conflict(f"There are {MOST} credentials, as many as there may be.", type="quota-exceeded")
    by, keys = call.caller.created_by, call.services.keys
    new = await credentials.put(call.pool, call.tenant, credential, body, by, keys)
    response.status_code = 201 if new else 200
    return _show(credential, body.rules())


@router.delete(
    "/credentials/{credential}", status_code=204, responses=problems(403, 404), summary="Remove a credential"
)
async def remove_credential(call: Admin, credential: str) -> Response:
    """Requests of tasks that run do not get it any more."""
    if not (credential.isascii() and credential.isprintable()) or not await credentials.remove(
        call.pool, call.tenant, credential, call.caller.created_by
    ):
        raise NotFound("There is no such credential.")
    return Response(status_code=204)


def _show(name: str, rules: CredentialRules) -> models.Credential:
    return models.Credential(name=name, **rules.model_dump())
