"""/threads/{id}/variables: values that a subagent needs before it can begin."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field, StringConstraints

from api.auth import Call, Reader, needs
from api.conversations import deferred_subagents
from api.http.accept_header import accepts_json
from api.http.body import json_body
from api.http.lookup import own_session
from api.openapi import BODY, problems, request_body
from domain.agents.names import VariableName
from domain.agents.variable_scope import NeededVariable
from domain.conversations.variable_request import VariableRequest, VariableRequestStatus
from domain.task import Strict
from store.keys import Right

router = APIRouter(tags=["input requests"], dependencies=[Depends(accepts_json)])

Giver = Annotated[Call, needs(Right.ANSWER, Right.SUPERVISE)]

_EXAMPLE: dict[str, Any] = {"variables": {"DEPLOY_TOKEN": "…"}}


class VariablesBody(Strict):
    variables: dict[VariableName, Annotated[str, StringConstraints(min_length=1, max_length=10_000)]] = Field(
        min_length=1, max_length=50, description="a value for each that is missing"
    )


class VariableRequestRecord(BaseModel):
    request_id: str
    thread_id: str
    status: VariableRequestStatus
    agent: str
    name: str = Field(description="of the subagent that waits")
    required: list[NeededVariable] = Field(description="of the subagent and of all that it can start itself")
    missing: list[str] = Field(description="the names without a value; none once they were given")
    reference: str | None = Field(description="the subagent's thread, once it was started")

    @classmethod
    def of(cls, request: VariableRequest) -> "VariableRequestRecord":
        waiting = request.status is VariableRequestStatus.OPEN
        return cls(
            request_id=request.id,
            thread_id=request.thread_id,
            status=request.status,
            agent=request.agent,
            name=request.name,
            required=request.needs,
            missing=request.missing_names if waiting else [],
            reference=request.reference if request.status is VariableRequestStatus.STARTED else None,
        )


@router.get(
    "/threads/{thread_id}/variables/{request_id}",
    responses=problems(404),
    summary="Show which variables a subagent waits for",
)
async def show_variables(call: Reader, thread_id: str, request_id: str) -> VariableRequestRecord:
    return VariableRequestRecord.of(await deferred_subagents.find(call, thread_id, request_id))


@router.post(
    "/threads/{thread_id}/variables/{request_id}",
    responses=problems(403, 404, 409, *BODY),
    openapi_extra=request_body(
        {"application/json": {"schema": VariablesBody.model_json_schema(), "example": _EXAMPLE}}
    ),
    summary="Give the variables that a subagent waits for, and start it",
)
async def give_variables(
    call: Giver, thread_id: str, request_id: str, body: Annotated[VariablesBody, json_body(VariablesBody)]
) -> VariableRequestRecord:
    """The subagent begins with the task that it was first given, once, however often this is sent."""
    request = await deferred_subagents.find(call, thread_id, request_id)
    await own_session(call, request.session_id)
    return VariableRequestRecord.of(await deferred_subagents.give(call, request, body.variables))
