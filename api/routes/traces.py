"""/tasks/{id}/trace: the steps of a task and its subagents, as JSON or as one page; /tasks/{id}/agent: its
definition."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Reader
from api.http.accept_header import accepts_json
from api.http.lookup import check_kept, session_of
from api.openapi import problems
from api.schemas.agents import AgentRecord
from api.views.trace import Tracer
from api.views.trace_page import POLICY, trace_page
from domain.sessions.trace import Trace
from store import agents, input_requests

router = APIRouter(tags=["tasks"])

PAGE_CHARS = 100_000  # of each text in a page


class TraceQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    chars: int = Field(default=2_000, ge=1, le=200_000, description="maximum number of characters of each text")


@router.get(
    "/tasks/{task_id}/trace",
    dependencies=[Depends(accepts_json)],
    responses=problems(404, 410, 422),
    summary="Trace a task step by step",
)
async def show_trace(call: Reader, task_id: str, query: Annotated[TraceQuery, Query()]) -> Trace:
    """Each step with its model and tool calls, their times, tokens and cost; also while the task is running."""
    session = await session_of(call, task_id)
    check_kept(session)
    return await Tracer(call.pool, call.tenant, query.chars).trace(session)


@router.get(
    "/tasks/{task_id}/trace.html",
    response_class=Response,
    responses={**problems(404, 410), 200: {"description": "The page", "content": {"text/html": {}}}},
    summary="Show the trace of a task as one page that can be shared",
)
async def show_trace_page(call: Reader, task_id: str) -> Response:
    """One file without scripts and without other resources; a question that waits for an answer is at the top."""
    session = await session_of(call, task_id)
    check_kept(session)
    trace = await Tracer(call.pool, call.tenant, PAGE_CHARS).trace(session)
    waiting = await input_requests.of_sessions(call.pool, call.tenant, [session.id, *trace.session_ids_below])
    headers = {
        # the page shows texts of models and tools: even if one escaped as HTML, no script of it would run
        "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'; sandbox",
        "Content-Disposition": f'inline; filename="trace-{session.id}.html"',
    }
    return Response(trace_page(trace, waiting), media_type="text/html", headers=headers)


@router.get(
    "/tasks/{task_id}/agent",
    dependencies=[Depends(accepts_json)],
    responses=problems(404),
    summary="Show the agent definition of a task",
)
async def show_task_agent(call: Reader, task_id: str) -> AgentRecord:
    """The version that the task uses, even if a newer one exists; for a rerun with another prompt, with that prompt."""
    session = await session_of(call, task_id)
    ref = session.agent_ref
    return AgentRecord.of(ref, await agents.load(call.pool, ref))
