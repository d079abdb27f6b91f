"""/threads/{id}/variables: the values of a thread, and those that a subagent needs before it can begin."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from api.conversations import deferred_subagents
from api.http.auth import Call, Reader, needs
from api.http.body import accepts_json, json_body
from api.http.lookup import check_open, own_conversation, own_session
from api.openapi import BODY, problems, request_body
from domain.agents.names import GivenVariables
from domain.agents.prompt import VariableKind
from domain.agents.secret_variables import UNKNOWN, sealed_for_thread
from domain.agents.variable_scope import Level, NeededVariable, graph_variables, levels, unnamed
from domain.conversations.variable_request import VariableRequest, VariableRequestStatus
from domain.errors import Conflict, NotFound
from domain.ids import is_id
from domain.redaction import is_sealed
from domain.task import Id, Strict
from store import agent_graph, agents, thread_variables, threads, variable_requests
from store.keys import Right
from store.sessions import SessionRow
from store.threads import ThreadPlace

router = APIRouter(tags=["input requests"], dependencies=[Depends(accepts_json)])

Giver = Annotated[Call, needs(Right.ANSWER, Right.SUPERVISE)]

Source = Level | Literal["inherited"]
_EXAMPLE: dict[str, Any] = {"variables": {"DEPLOY_TOKEN": "…"}}


class VariablesBody(Strict):
    variables: GivenVariables = Field(description="values by name")


_BODY = request_body({"application/json": {"schema": VariablesBody.model_json_schema(), "example": _EXAMPLE}})


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


class VariableRequestQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    status: VariableRequestStatus = VariableRequestStatus.OPEN
    conversation_id: Id | None = None
    limit: int = Field(default=50, ge=1, le=200)


@router.get("/variable-requests", responses=problems(422), summary="List subagents that wait for variables")
async def list_variable_requests(call: Reader, query: Annotated[VariableRequestQuery, Query()]) -> VariableRequestPage:
    """Oldest first."""
    found = await variable_requests.find(call.pool, call.tenant, query.status, query.conversation_id, query.limit)
    return VariableRequestPage(items=[VariableRequestRecord.of(one) for one in found])


@router.get("/threads/{thread_id}/variables", responses=problems(404), summary="Show the variables of a thread")
async def show_thread_variables(call: Reader, thread_id: str) -> ThreadVariables:
    return await _shown(call, *await _thread(call, thread_id))


@router.put(
    "/threads/{thread_id}/variables",
    responses=problems(403, 404, 409, *BODY),
    openapi_extra=_BODY,
    summary="Set variables of a thread and of those below it",
)
async def set_thread_variables(
    call: Giver, thread_id: str, body: Annotated[VariablesBody, json_body(VariablesBody)]
) -> ThreadVariables:
    """Running sessions have the values from their next step on, and so have the active threads below that inherit them.
    A name that no agent of the graph declares is stored as a secret of this thread, for its tools."""
    place, session = await _thread(call, thread_id)
    check_open(await own_conversation(call, place.conversation_id))
    if place.terminated:
        raise Conflict("This thread was terminated.", type="thread-terminated")
    definition = await agents.load(call.pool, session.current_agent_ref)
    known = graph_variables(await agent_graph.reachable(call.pool, call.tenant, definition))
    sealed = sealed_for_thread(call.services.keys, call.tenant, body.variables, known)
    await thread_variables.set_values(call.pool, call.tenant, place, sealed, call.caller.created_by)
    return await _shown(call, *await _thread(call, thread_id))


@router.get(
    "/threads/{thread_id}/variables/{request_id}",
    tags=["core"],
    responses=problems(404),
    summary="Show which variables a subagent waits for",
)
async def show_variables(call: Reader, thread_id: str, request_id: str) -> VariableRequestRecord:
    return VariableRequestRecord.of(await deferred_subagents.find(call, thread_id, request_id))


@router.post(
    "/threads/{thread_id}/variables/{request_id}",
    tags=["core"],
    responses=problems(403, 404, 409, *BODY),
    openapi_extra=_BODY,
    summary="Give the variables that a subagent waits for, and start it",
)
async def give_variables(
    call: Giver, thread_id: str, request_id: str, body: Annotated[VariablesBody, json_body(VariablesBody)]
) -> VariableRequestRecord:
    """The subagent begins once with its original task, however often this is sent."""
    request = await deferred_subagents.find(call, thread_id, request_id)
    await own_session(call, request.session_id)
    return VariableRequestRecord.of(await deferred_subagents.give(call, request, body.variables))


async def _thread(call: Call, thread_id: str) -> tuple[ThreadPlace, SessionRow]:
    """The thread; unknown, malformed and foreign ids get the same refusal."""
    place = await threads.get(call.pool, call.tenant, thread_id) if is_id(thread_id) else None
    session = await threads.newest_session(call.pool, call.tenant, thread_id) if place else None
    if place is None or session is None:
        raise NotFound("There is no such thread.", type="unknown-thread")
    return place, session


async def _shown(call: Call, place: ThreadPlace, session: SessionRow) -> ThreadVariables:
    definition = await agents.load(call.pool, session.current_agent_ref)
    own, values = await thread_variables.own(call.pool, call.tenant, place.id), session.variables
    found = []
    sources = levels(definition, values)
    for name, one in (definition.settable_variables | dict.fromkeys(unnamed(own), UNKNOWN)).items():
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
