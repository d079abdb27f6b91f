"""/tasks/{id}/budget: shows and raises the limits of a task, its subagents and the whole conversation."""

from datetime import UTC, datetime
from typing import Annotated

from errand import models
from fastapi import APIRouter, Depends
from pydantic import Field

from api.control.raise_budget import raise_budget
from api.http.auth import Call, Reader, Stopper
from api.http.body import accepts_json, json_body
from api.http.lookup import own_session, session_of
from api.openapi import BODY, problems, ref, request_body
from api.schemas.budgets import RaiseBudget
from domain.limits import Reserved, Share, shares, time_of
from store import budgets, children, tool_calls
from store.sessions import SessionRow, get

router = APIRouter(tags=["tasks"], dependencies=[Depends(accepts_json)])

Kind = Annotated[str, Field(description="steps, tokens, cost_usd, tool_calls, ttl (milliseconds) or sessions")]


@router.get("/tasks/{task_id}/budget", responses=problems(404), summary="Show what a task may still use")
async def show_budget(call: Reader, task_id: str) -> models.TaskBudget:
    return await _budget(call, await session_of(call, task_id))


@router.post(
    "/tasks/{task_id}/budget",
    responses=problems(403, 404, 409, *BODY),
    openapi_extra=request_body({"application/json": {"schema": ref(RaiseBudget), "example": {"max_steps": 100}}}),
    summary="Raise what a running task may use",
)
async def raise_task_budget(
    call: Stopper, task_id: str, body: Annotated[RaiseBudget, json_body(RaiseBudget)]
) -> models.TaskBudget:
    """The new limits apply before the task's next step. A task that is already writing its last summary still ends."""
    await raise_budget(call, await own_session(call, task_id), body)
    return await _budget(call, await session_of(call, task_id))


async def _budget(call: Call, session: SessionRow) -> models.TaskBudget:
    below = [
        await get(call.pool, call.tenant, child.session_id)
        for child in await children.of_session(call.pool, call.tenant, session.id, limit=200)
    ]
    known = [session, *(child for child in below if child is not None)]
    own, *subagents = [_own(one) for one in await tool_calls.up_to_date(call.pool, call.tenant, known)]
    tree = await budgets.get(call.pool, call.tenant, session.conversation_id)
    held = await budgets.held(call.pool, call.tenant, session.conversation_id) if tree else Reserved()
    return models.TaskBudget(
        **dict(own),
        children=subagents,
        tree=models.TreeBudget(
            conversation_id=session.conversation_id,
            deadline=tree.deadline,
            budgets=_lines(tree.shares()),
            reserved=models.ReservedAmounts(**held.model_dump()),
        )
        if tree
        else None,
    )


def _own(session: SessionRow) -> models.SessionBudget:
    time = time_of(session.limits, session.created_at, session.deadline, session.ended_at or datetime.now(UTC))
    return models.SessionBudget(
        task_id=session.id,
        name=session.subagent_name or session.agent,
        status=session.status.value,
        budgets=_lines(shares(session.limits, session.step, session.usage, time)),
    )


def _lines(found: list[Share]) -> list[models.BudgetLine]:
    return [models.BudgetLine(budget=one.kind, limit=one.limit, used=one.used, left=one.left) for one in found]
