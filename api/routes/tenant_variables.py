"""/variables: values that a tenant sets for all its threads. Changes need the right supervise."""

import re
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field

from api.http.auth import Call, Reader, needs
from api.http.body import accepts_json, json_body
from api.openapi import BODY, problems, request_body
from domain.agents.names import VARIABLE_NAME_PATTERN, GivenVariables
from domain.agents.prompt import VariableKind
from domain.agents.secret_variables import UNKNOWN, seal_secrets
from domain.errors import NotFound
from domain.redaction import is_sealed
from domain.task import Strict
from store import tenant_variables
from store.keys import Right
from store.tenant_variables import TenantVariable

router = APIRouter(tags=["input requests"], dependencies=[Depends(accepts_json)])

Supervisor = Annotated[Call, needs(Right.SUPERVISE)]
_EXAMPLE = {"variables": {"REGION": "north"}, "kind": "text"}


class TenantVariablesBody(Strict):
    variables: GivenVariables = Field(description="values by name; others stay as they are")
    kind: Literal["text", "secret"] = Field(
        default="secret", description="a secret is given to tools only and never shown again"
    )


class TenantVariableRecord(BaseModel):
    name: str
    kind: VariableKind
    value: str | None = Field(description="of a text; a secret is never shown")
    updated_by: str
    updated_at: datetime

    @classmethod
    def of(cls, one: TenantVariable) -> "TenantVariableRecord":
        secret = is_sealed(one.value)
        return cls(
            name=one.name,
            kind=VariableKind.SECRET if secret else VariableKind.TEXT,
            value=None if secret else one.value,
            updated_by=one.updated_by,
            updated_at=one.updated_at,
        )


class TenantVariablePage(BaseModel):
    items: list[TenantVariableRecord]


@router.get("/variables", responses=problems(), summary="List the variables of all threads")
async def list_tenant_variables(call: Reader) -> TenantVariablePage:
    found = await tenant_variables.listing(call.pool, call.tenant)
    return TenantVariablePage(items=[TenantVariableRecord.of(one) for one in found])


@router.put(
    "/variables",
    responses=problems(403, 409, *BODY),
    openapi_extra=request_body(
        {"application/json": {"schema": TenantVariablesBody.model_json_schema(), "example": _EXAMPLE}}
    ),
    summary="Set variables of all threads",
)
async def set_tenant_variables(
    call: Supervisor, body: Annotated[TenantVariablesBody, json_body(TenantVariablesBody)]
) -> TenantVariablePage:
    """They apply to tasks and turns that begin from now on, unless their thread has its own value."""
    kinds = dict.fromkeys(body.variables, UNKNOWN) if body.kind == "secret" else {}
    sealed = seal_secrets(call.services.keys, call.tenant, body.variables, kinds)
    await tenant_variables.put(call.pool, call.tenant, sealed, call.caller.created_by)
    return await list_tenant_variables(call)


@router.delete("/variables/{name}", status_code=204, responses=problems(403, 404), summary="Remove a variable")
async def remove_tenant_variable(call: Supervisor, name: str) -> Response:
    """Sessions that have begun keep the value."""
    known = re.fullmatch(VARIABLE_NAME_PATTERN, name)
    if not known or not await tenant_variables.remove(call.pool, call.tenant, name, call.caller.created_by):
        raise NotFound("There is no such variable.")
    return Response(status_code=204)
