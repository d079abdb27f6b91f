"""Variables: values that a subagent waits for, values of a thread, and values that a tenant sets for all its threads.

A secret is encrypted before anything is stored.
"""

import logging
import re
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.http.auth import Call, Reader, Supervisor, needs
from api.http.body import json_body
from api.http.lookup import check_open, conversation_of, own_conversation, own_session
from api.http.paging import ListParameters
from api.http.problems import finding
from api.openapi import problems
from domain.agents.definition import VARIABLE_NAME_PATTERN, GivenVariables, VariableKind
from domain.agents.variables import (
    UNKNOWN,
    Level,
    NeededVariable,
    find_unnamed,
    graph_variables,
    open_secrets,
    seal_for_thread,
    seal_secrets,
    store_given,
    values_by_level,
)
from domain.conversations.requests import SpawnRequest
from domain.conversations.variable_request import VariableRequest, VariableRequestStatus
from domain.errors import Conflict, Invalid, NotFound, Unavailable
from domain.ids import is_id
from domain.redaction import is_sealed
from domain.task import Id, Strict
from store import agents, threads
from store import variables as stored_variables
from store.keys import Right
from store.sessions import SessionRow
from store.threads import ThreadPlace
from store.variables import TenantVariable

log = logging.getLogger("errand.api")
router = APIRouter(tags=["input requests"])
Giver = Annotated[Call, needs(Right.ANSWER, Right.SUPERVISE)]
Source = Level | Literal["inherited"]
_EXAMPLE: dict[str, Any] = {"variables": {"DEPLOY_TOKEN": "…"}}
_TENANT_EXAMPLE = {"variables": {"REGION": "north"}, "kind": "text"}


class VariablesBody(Strict):
    variables: GivenVariables = Field(description="values by name")


class TenantVariablesBody(Strict):
    variables: GivenVariables = Field(description="values by name; others stay as they are")
    kind: Literal["text", "secret"] = Field(
        default="secret", description="a secret is given to tools only and never shown again"
    )


class VariableRequestRecord(BaseModel):
    request_id: str
    thread_id: str
    conversation_id: str
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
            conversation_id=request.conversation_id,
            status=request.status,
            agent=request.agent,
            name=request.name,
            required=request.needs,
            missing=request.missing_names if waiting else [],
            reference=request.reference if request.status is VariableRequestStatus.STARTED else None,
        )


class VariableRequestPage(BaseModel):
    items: list[VariableRequestRecord]
    next_cursor: str | None


class ThreadVariable(BaseModel):
    name: str
    kind: VariableKind
    scoped: bool
    required: bool
    description: str
    source: Source | None = Field(
        description="set for this thread, given with the task or inherited, of all threads of the tenant or the "
        "deployment, or a default of the agent or its prompt; null: no value"
    )
    value: str | None = Field(description="of a text; a secret is never shown")


class ThreadVariables(BaseModel):
    thread_id: str
    conversation_id: str
    agent: str
    variables: list[ThreadVariable]


class VariableRequestQuery(ListParameters):
    status: VariableRequestStatus = VariableRequestStatus.OPEN
    conversation_id: Id | None = None


@router.get("/variable-requests", summary="List subagents that wait for variables")
async def list_variable_requests(call: Reader, query: Annotated[VariableRequestQuery, Query()]) -> VariableRequestPage:
    """Oldest first."""
    found = await stored_variables.find_requests(
        call.pool, call.tenant, query.status, query.conversation_id, query.after(), query.limit + 1
    )
    shown, more = query.page(found, lambda one: one.id)
    return VariableRequestPage(items=[VariableRequestRecord.of(one) for one in shown], next_cursor=more)


@router.get(
    "/threads/{thread_id}/variables/{request_id}", tags=["core"], summary="Show which variables a subagent waits for"
)
async def show_variables(call: Reader, thread_id: str, request_id: str) -> VariableRequestRecord:
    return VariableRequestRecord.of(await find_request(call, thread_id, request_id))


@router.post(
    "/threads/{thread_id}/variables/{request_id}",
    tags=["core"],
    responses=problems(409),
    summary="Give the variables that a subagent waits for, and start it",
)
async def give_variables(
    call: Giver,
    thread_id: str,
    request_id: str,
    body: Annotated[VariablesBody, json_body(VariablesBody, example=_EXAMPLE)],
) -> VariableRequestRecord:
    """The subagent begins once with its original task, however often this is sent."""
    request = await find_request(call, thread_id, request_id)
    await own_session(call, request.session_id)
    return VariableRequestRecord.of(await give_values(call, request, body.variables))


@router.get("/threads/{thread_id}/variables", responses=problems(409), summary="Show the variables of a thread")
async def show_thread_variables(call: Reader, thread_id: str) -> ThreadVariables:
    return await _show(call, *await _thread(call, thread_id))


@router.put(
    "/threads/{thread_id}/variables", responses=problems(409), summary="Set variables of a thread and of those below it"
)
async def set_thread_variables(
    call: Giver, thread_id: str, body: Annotated[VariablesBody, json_body(VariablesBody, example=_EXAMPLE)]
) -> ThreadVariables:
    """Running sessions have the values from their next step on, and so have the active threads below that inherit them.
    A name that no agent of the graph declares is stored as a secret of this thread, for its tools."""
    place, session = await _thread(call, thread_id)
    check_open(await own_conversation(call, place.conversation_id))
    if place.terminated:
        raise Conflict("This thread was terminated.", type="thread-terminated")
    definition = await agents.load(call.pool, session.current_agent_ref)
    known = graph_variables(await agents.find_reachable(call.pool, call.tenant, definition))
    sealed = seal_for_thread(call.services.keys, call.tenant, body.variables, known)
    await stored_variables.set_for_thread(call.pool, call.tenant, place, sealed, call.caller.created_by)
    return await _show(call, *await _thread(call, thread_id))


async def _thread(call: Call, thread_id: str) -> tuple[ThreadPlace, SessionRow]:
    """The thread; unknown, malformed and foreign ids get the same refusal."""
    place = await threads.get(call.pool, call.tenant, thread_id) if is_id(thread_id) else None
    session = await threads.newest_session(call.pool, call.tenant, thread_id) if place else None
    if place is None or session is None:
        raise NotFound("There is no such thread.", type="unknown-thread")
    return place, session


async def _show(call: Call, place: ThreadPlace, session: SessionRow) -> ThreadVariables:
    definition = await agents.load(call.pool, session.current_agent_ref)
    own, values = await stored_variables.values_of_thread(call.pool, call.tenant, place.id), session.variables
    found = []
    sources = values_by_level(definition, values)
    for name, one in (definition.settable_variables | dict.fromkeys(find_unnamed(own), UNKNOWN)).items():
        source = next((level for level in sources if name in sources[level]), None)
        value = sources[source][name] if source else None
        given: Source | None = "inherited" if source == "thread" else source
        # also by its stored form: the value may have been set as a secret before an agent declared it as text
        secret = one.kind is VariableKind.SECRET or (value is not None and is_sealed(value))
        found.append(
            ThreadVariable(
                **one.model_dump(exclude={"kind", "default"}),
                name=name,
                kind=VariableKind.SECRET if secret else VariableKind.TEXT,
                source="thread" if name in own or one is UNKNOWN else given,
                value=None if secret else value,
            )
        )
    return ThreadVariables(
        thread_id=place.id, conversation_id=place.conversation_id, agent=definition.name, variables=found
    )


# A subagent that waits for values: find its request, store the values, start it.


async def find_request(call: Call, thread_id: str, request_id: str) -> VariableRequest:
    """The request; unknown, malformed and foreign ids get the same refusal."""
    known = is_id(thread_id) and is_id(request_id)
    request = await stored_variables.get_request(call.pool, call.tenant, thread_id, request_id) if known else None
    if request is None:
        raise NotFound()
    return request


async def give_values(call: Call, request: VariableRequest, given: dict[str, str]) -> VariableRequest:
    """Store the values and start the subagent. A repetition with the same values gets the same response."""
    check_open(await conversation_of(call, request.conversation_id))
    if await threads.is_terminated(call.pool, call.tenant, request.thread_id):
        raise Conflict("The thread was terminated.", type="thread-terminated")
    _check_names(request, given)
    if request.status is VariableRequestStatus.OPEN:
        spawn = await _with_values(call, request, given)
        answered = await stored_variables.answer_request(call.pool, request, spawn, call.caller.created_by)
        # somebody else was faster; `_check_same` then decides whether both gave the same values
        request = answered or await find_request(call, request.thread_id, request.id)
    _check_same(call, request, given)
    return await _start_subagent(call, request) if request.status is VariableRequestStatus.ANSWERED else request


async def _start_subagent(call: Call, request: VariableRequest) -> VariableRequest:
    """Ask the conversation to start the subagent. If Temporal is unreachable, a sweep does it."""
    try:
        answer = await call.services.workflows.spawn(call.tenant, request.conversation_id, request.spawn)
    except Unavailable as error:
        log.info("the subagent of %s starts later: %s", request.id, error)
        return request
    refusal = answer.answers[0].error
    await stored_variables.settle_request(call.pool, request, started=refusal is None)
    if refusal is not None:
        raise Conflict(f"The subagent cannot start now: {refusal}", type="not-started-now")
    return await find_request(call, request.thread_id, request.id)


def _check_names(request: VariableRequest, given: dict[str, str]) -> None:
    asked = request.missing_names
    found = [
        finding(f"/variables/{name}", "unknown_variable", "is not asked for", asked)
        for name in given
        if name not in asked
    ]
    found += [finding(f"/variables/{name}", "missing", "needs a value") for name in asked if name not in given]
    if found:
        raise Invalid("The values do not fit what is missing.", errors=found[:50])


async def _with_values(call: Call, request: VariableRequest, given: dict[str, str]) -> SpawnRequest:
    """The original call with the values; secrets are encrypted before anything is stored."""
    # If agents disagree about a name it is a secret: that kind sorts last.
    kinds = {one.name: one for one in sorted(request.missing, key=lambda one: one.kind, reverse=True)}
    sealed = seal_secrets(call.services.keys, call.tenant, given, kinds)
    [child] = request.spawn.children
    session = child.session.model_copy(
        update={"variables": {**child.session.variables, **store_given(request.agent, request.missing, sealed)}}
    )
    return request.spawn.model_copy(
        update={
            # A new id for each attempt: Temporal would repeat its first refusal for the same one.
            "request_id": f"{request.id}/{request.attempts + 1}",
            "children": [child.model_copy(update={"session": session})],
        }
    )


def _check_same(call: Call, request: VariableRequest, given: dict[str, str]) -> None:
    """Refuse values that differ from those with which it begins."""
    stored = request.spawn.children[0].session.variables
    # decrypted, because the same secret is encrypted differently every time
    known = {**stored, **open_secrets(call.services.keys, call.tenant, stored)}
    wanted = store_given(request.agent, request.missing, given)
    if {name: known.get(name) for name in wanted} != wanted:
        raise Conflict("Other values were given before.", type="request-settled", request_status=request.status)


# Values of the tenant.


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


@router.get("/variables", summary="List the variables of all threads")
async def list_tenant_variables(call: Reader) -> TenantVariablePage:
    found = await stored_variables.list_of_tenant(call.pool, call.tenant)
    return TenantVariablePage(items=[TenantVariableRecord.of(one) for one in found])


@router.put("/variables", responses=problems(409), summary="Set variables of all threads")
async def set_tenant_variables(
    call: Supervisor, body: Annotated[TenantVariablesBody, json_body(TenantVariablesBody, example=_TENANT_EXAMPLE)]
) -> TenantVariablePage:
    """They apply to tasks and turns that begin from now on, unless their thread has its own value."""
    kinds = dict.fromkeys(body.variables, UNKNOWN) if body.kind == "secret" else {}
    sealed = seal_secrets(call.services.keys, call.tenant, body.variables, kinds)
    await stored_variables.put_for_tenant(call.pool, call.tenant, sealed, call.caller.created_by)
    return await list_tenant_variables(call)


@router.delete("/variables/{name}", status_code=204, summary="Remove a variable")
async def remove_tenant_variable(call: Supervisor, name: str) -> Response:
    """Sessions that have begun keep the value."""
    known = re.fullmatch(VARIABLE_NAME_PATTERN, name)
    if not known or not await stored_variables.remove_for_tenant(call.pool, call.tenant, name, call.caller.created_by):
        raise NotFound("There is no such variable.")
    return Response(status_code=204)
