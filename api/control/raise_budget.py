"""Raising the budget of a running task: the row is raised first and counts; the signal only speeds it up."""

import logging
from datetime import timedelta

from api.http.auth import Call
from api.http.problems import finding, type_name
from api.schemas.budgets import FIELDS, RaiseBudget
from api.schemas.problems import Finding
from api.services import Services
from api.submission.budgets import ceilings
from domain.errors import Conflict, Invalid
from domain.limits import KINDS, Raise, TreeBudget
from domain.sessions.session import Limits
from settings import Settings
from store import budgets, sessions
from store.sessions import SessionRow

log = logging.getLogger("errand.api")

ENDED = "The task has ended; run it again, or send another message."


async def raise_budget(call: Call, session: SessionRow, body: RaiseBudget) -> None:
    """Refuse a value that is not a raise or exceeds a ceiling; else write it and signal the running session."""
    _check_running(session)
    wanted = body.wanted()
    tree = await budgets.get(call.pool, call.tenant, session.conversation_id)
    problems = [*_own(session, wanted, call.settings), *_tree(tree, wanted, call.settings)]
    if not problems and not wanted.model_dump(exclude_defaults=True):
        problems = [finding("", "empty", "name at least one limit", [*FIELDS, "tree"])]
    problems = problems or _beyond_tree(session, tree, wanted)
    if problems:
        raise Invalid("The budget cannot be raised like this.", errors=problems)
    # this checks the status again under a lock: the session may have ended since it was read
    raised = await budgets.raise_limits(call.pool, session.ref, wanted, call.caller.name, call.caller.created_by)
    if raised is None:
        raise Conflict(ENDED, type="already-terminal")
    await _signal(call.services, session, raised.limits)


def _check_running(session: SessionRow) -> None:
    if session.status.terminal:
        raise Conflict(ENDED, type="already-terminal", task_status=session.status)
    if not session.live:
        raise Conflict("The task waits for its turn; raise its budget when it has begun.", type="not-started")


def _own(session: SessionRow, wanted: Raise, settings: Settings) -> list[Finding]:
    most = {
        "ttl_ms": settings.max_ttl_ms,
        "steps": settings.max_steps,
        "tokens": settings.max_tokens,
        "cost_usd": settings.max_cost_usd,
    }
    return [
        problem
        for name, kind in FIELDS.items()
        for problem in _problems(f"/{name}", getattr(wanted, kind), getattr(session.limits, kind), most.get(kind))
    ]


def _tree(tree: TreeBudget | None, wanted: Raise, settings: Settings) -> list[Finding]:
    most, now = ceilings(settings), {share.kind: share.limit for share in (tree.shares() if tree else [])}
    return [
        problem
        for kind in KINDS
        for problem in _problems(f"/tree/max_{kind}", wanted.tree.get(kind), now.get(kind), most.get(kind))
    ]


def _problems(pointer: str, value: float | None, now: float | None, most: float | None) -> list[Finding]:
    if value is None:
        return []
    if now is None:
        return [finding(pointer, "no_limit", "there is no such limit to raise", [])]
    if value < now:
        return [finding(pointer, "lower", "less than it is now: a running task keeps what it has", [f"{now:g}.."])]
    # a ceiling that was lowered later does not take away what the task already has
    if most is not None and value > max(most, now):
        return [finding(pointer, "out_of_range", "beyond what this platform allows", [f"..{most:g}"])]
    return []


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


async def _signal(services: Services, session: SessionRow, limits: Limits) -> None:
    """Signal the limits, even for a repetition that changed nothing: the first signal may have been lost."""
    try:
        if await services.workflows.limits_raised(session.id, limits):
            return
    # any error: the row is raised, so that the response must not say otherwise
    except Exception as error:
        log.warning("session %s will see its new limits later (%s)", session.id, type_name(error))
    services.retry_queue.add(f"the limits of {session.id}", lambda: _signal_again(services, session))


async def _signal_again(services: Services, session: SessionRow) -> bool:
    # read again, because a further raise may have been written while this one waited
    now = await sessions.get(services.pool, session.tenant, session.id)
    return now is None or now.status.terminal or await services.workflows.limits_raised(session.id, now.limits)
