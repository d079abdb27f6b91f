"""/tasks/{id}/budget: shows and raises the limits of a task, its subagents and the whole conversation."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from errand import models
from fastapi import APIRouter
from pydantic import Field

from api.http.auth import Call, Reader, Stopper
from api.http.body import json_body
from api.http.lookup import own_session, session_of
from api.http.problems import Finding, finding
from api.openapi import problems
from domain.errors import Conflict, Invalid
from domain.limits import KINDS, Raise, Reserved, Share, TreeBudget, shares, time_of
from domain.task import MostUsed, TaskLimits
from settings import Settings
from store import budgets, threads, tool_calls
from store.sessions import SessionRow, get

router = APIRouter(tags=["tasks"])
ENDED = "The task has ended; run it again, or send another message."
Kind = Annotated[str, Field(description="steps, tokens, cost_usd, tool_calls or ttl (milliseconds)")]
FIELDS = {
    "ttl": "ttl_ms",
    "max_steps": "steps",
    "max_tokens": "tokens",
    "max_cost_usd": "cost_usd",
    "max_tool_calls": "tool_calls",
}


class RaiseBudget(TaskLimits):
    """New limits, not additions, so that a repetition changes nothing."""

    tree: MostUsed | None = Field(default=None, description="of the conversation")

    def to_raise(self) -> Raise:
        given = {kind: getattr(self, name) for name, kind in FIELDS.items()}
        tree = self.tree.model_dump(exclude_none=True) if self.tree else {}
        return Raise(**given, tree={name.removeprefix("max_"): limit for name, limit in tree.items()})


@router.get("/tasks/{task_id}/budget", summary="Show what a task may still use")
async def show_budget(call: Reader, task_id: str) -> models.TaskBudget:
    return await _budget(call, await session_of(call, task_id))


@router.post("/tasks/{task_id}/budget", responses=problems(409), summary="Raise what a running task may use")
async def raise_task_budget(
    call: Stopper, task_id: str, body: Annotated[RaiseBudget, json_body(RaiseBudget, example={"max_steps": 100})]
) -> models.TaskBudget:
    """The new limits apply before the task's next step. A task that is already writing its last summary still ends."""
    await raise_budget(call, await own_session(call, task_id), body)
    return await _budget(call, await session_of(call, task_id))


async def _budget(call: Call, session: SessionRow) -> models.TaskBudget:
    below = [
        await get(call.pool, call.tenant, child.session_id)
        for child in await threads.children_of_session(call.pool, call.tenant, session.id, limit=200)
    ]
    known = [session, *(child for child in below if child is not None)]
    own, *subagents = [_session_budget(one) for one in await tool_calls.count_calls(call.pool, call.tenant, known)]
    tree = await budgets.get(call.pool, call.tenant, session.conversation_id)
    held = await budgets.sum_reserved(call.pool, call.tenant, session.conversation_id) if tree else Reserved()
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


def _session_budget(session: SessionRow) -> models.SessionBudget:
    time = time_of(session.limits, session.created_at, session.deadline, session.ended_at or datetime.now(UTC))
    return models.SessionBudget(
        task_id=session.id,
        name=session.subagent_name or session.agent,
        status=session.status.value,
        budgets=_lines(shares(session.limits, session.step, session.usage, time)),
    )


def _lines(found: list[Share]) -> list[models.BudgetLine]:
    return [models.BudgetLine(budget=one.kind, limit=one.limit, used=one.used, left=one.left) for one in found]


# Raising the budget of a running task: the row is raised first and counts; the signal only speeds it up.


async def raise_budget(call: Call, session: SessionRow, body: RaiseBudget) -> None:
    """Refuse a value that is not a raise or exceeds a ceiling; else write it and signal the running session."""
    _check_running(session)
    wanted = body.to_raise()
    tree = await budgets.get(call.pool, call.tenant, session.conversation_id)
    problems = _limit_problems(session, tree, wanted, call.settings)
    if not problems and not wanted.model_dump(exclude_defaults=True):
        problems = [finding("", "empty", "name at least one limit", [*FIELDS, "tree"])]
    problems = problems or _beyond_tree(session, tree, wanted)
    if problems:
        raise Invalid("The budget cannot be raised like this.", errors=problems)
    # this checks the status again under a lock: the session may have ended since it was read
    raised = await budgets.raise_limits(call.pool, session.ref, wanted, call.caller.name, call.caller.created_by)
    if raised is None:
        raise Conflict(ENDED, type="already-terminal")
    # Even for a repetition that changed nothing: the first signal may have been lost. The next step reads the row
    # anyway, and a sweep signals it to a session that waits.
    await call.services.workflows.signal_limits(session.id, raised.limits)


def _check_running(session: SessionRow) -> None:
    if session.status.terminal:
        raise Conflict(ENDED, type="already-terminal", task_status=session.status)
    if not session.live:
        raise Conflict("The task waits for its turn; raise its budget when it has begun.", type="not-started")


def _limit_problems(session: SessionRow, tree: TreeBudget | None, wanted: Raise, settings: Settings) -> list[Finding]:
    ceilings: dict[str, float] = {
        "ttl_ms": settings.max_ttl_ms,
        "steps": settings.max_steps,
        "tokens": settings.max_tokens,
        "cost_usd": settings.max_cost_usd,
    }
    shared = {one.kind: one.limit for one in (tree.shares() if tree else [])}
    # place, the new limit, the present one, the most that the platform allows
    limits = [
        (f"/{name}", getattr(wanted, kind), getattr(session.limits, kind), ceilings.get(kind))
        for name, kind in FIELDS.items()
    ]
    limits += [(f"/tree/max_{kind}", wanted.tree.get(kind), shared.get(kind), None) for kind in KINDS]
    found = []
    for pointer, value, now, most in limits:
        if value is None:
            continue
        if now is None:
            found.append(finding(pointer, "no_limit", "there is no such limit to raise", []))
        elif value < now:
            message = "less than it is now: a running task keeps what it has"
            found.append(finding(pointer, "lower", message, [f"{now:g}.."]))
        # a ceiling that was lowered later does not take away what the task already has
        elif most is not None and value > max(most, now):
            found.append(finding(pointer, "out_of_range", "beyond what this platform allows", [f"..{most:g}"]))
    return found


def _beyond_tree(session: SessionRow, tree: TreeBudget | None, wanted: Raise) -> list[Finding]:
    """Refuse a part that would get more than the whole."""
    if tree is None:
        return []
    whole = {share.kind: share.limit for share in tree.shares()} | wanted.tree
    over = [
        finding(f"/{name}", "out_of_range", "more than the conversation has", [f"..{whole[kind]:g}"])
        for name, kind in FIELDS.items()
        if kind in whole and (getattr(wanted, kind) or 0) > whole[kind]
    ]
    longer = timedelta(milliseconds=(wanted.ttl_ms or 0) - session.limits.ttl_ms)
    if wanted.ttl_ms and tree.deadline is not None and longer and session.deadline + longer > tree.deadline:
        over.append(finding("/ttl", "out_of_range", f"the conversation ends at {tree.deadline.isoformat()}", []))
    return over
