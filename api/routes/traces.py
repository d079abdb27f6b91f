"""/tasks/{id}/trace: the steps of a task and its subagents; /tasks/{id}/agent: its definition."""

from typing import Annotated

from errand import models
from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from api.http.auth import Reader
from api.http.body import accepts_json
from api.http.lookup import check_kept, session_of
from api.openapi import problems
from api.schemas.agents import AgentRecord
from api.views.trace import Tracer
from store import agents

router = APIRouter(tags=["tasks"])


class TraceQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    chars: int = Field(default=2_000, ge=1, le=200_000, description="maximum number of characters of each text")


@router.get(
    "/tasks/{task_id}/trace",
    dependencies=[Depends(accepts_json)],
    responses=problems(404, 410, 422),
    summary="Trace a task step by step",
)
async def show_trace(call: Reader, task_id: str, query: Annotated[TraceQuery, Query()]) -> models.Trace:
    """Each step with its model and tool calls, their times, tokens and cost; also while the task is running."""
    session = await session_of(call, task_id)
    check_kept(session)
    return await Tracer(call.pool, call.tenant, query.chars).trace(session)


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
