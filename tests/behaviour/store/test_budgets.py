"""Budgets of trees: reserved under a lock, settled once, released at the end."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from domain.limits import CallEstimate, TreeBudget
from domain.sessions.new_session import Trigger
from domain.sessions.session import Reason, SessionRef, Usage
from domain.sessions.writes import Acceptance, BudgetUse, NewBudget
from store import budgets, messages, sessions
from store.database import Pool
from store.runs import SessionEnded
from tests.behaviour.store.conftest import Accept, new_session
from tests.behaviour.store.test_messages import step
from tests.behaviour.store.test_sessions import ending

ESTIMATE = CallEstimate(input_tokens=1_000, output_tokens=2_000)


async def budgeted(pool: Pool, ref: SessionRef, **limits: float) -> None:
    tree = json.dumps(limits)
    await pool.fetchval("SELECT enter_budget($1, $2, $3::jsonb)", ref.tenant, ref.conversation_id, tree)


async def held(pool: Pool, ref: SessionRef) -> tuple[int, int]:
    found = await budgets.sum_reserved(pool, ref.tenant, ref.conversation_id)
    return found.calls, found.tokens


async def test_concurrent_calls_share_the_budget(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    await budgeted(pool, ref, max_tokens=10_000)
    grants = await asyncio.gather(*(budgets.reserve(pool, ref, f"line {number}", ESTIMATE) for number in range(20)))
    assert sum(grant.given for grant in grants) == 3
    assert sum(grant.wait for grant in grants) == 17
    assert await held(pool, ref) == (3, 9_000)


async def test_an_attempt_replaces_the_one_before_and_a_commit_settles_once(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    await budgeted(pool, ref, max_tokens=10_000)
    for _ in range(3):
        assert (await budgets.reserve(pool, ref, "main", ESTIMATE)).given
    assert await held(pool, ref) == (1, 3_000)
    commit = step(ref, f"{ref.session_id}/1", 2, "done", used=BudgetUse(tokens=8_500, steps=1))
    await asyncio.gather(*(messages.commit_step(pool, commit) for _ in range(4)))
    tree = await budgets.get(pool, ref.tenant, ref.conversation_id)
    assert tree is not None and (tree.tokens, tree.steps) == (8_500, 1)
    assert await held(pool, ref) == (0, 0)
    reported = await pool.fetch("SELECT data FROM events WHERE session_id = $1 AND type = 'budget_low'", ref.session_id)
    assert [json.loads(row["data"]) for row in reported] == [
        {"scope": "tree", "budget": "tokens", "limit": 10_000, "left": 1_500}
    ]
    assert (await budgets.reserve(pool, ref, "main", ESTIMATE)).output_tokens == 500  # no more than what is left


async def test_end_of_a_session_releases_its_reservations(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    await budgeted(pool, ref, max_tokens=10_000)
    await budgets.reserve(pool, ref, "main/1.0", ESTIMATE)
    await sessions.finish_session(pool, ending(ref, Reason.ERROR))
    assert await held(pool, ref) == (0, 0)
    with pytest.raises(SessionEnded):  # a worker that was paused meanwhile
        await budgets.reserve(pool, ref, "main/1.0", ESTIMATE, "run")
    assert await held(pool, ref) == (0, 0)


async def tree_of(pool: Pool, ref: SessionRef) -> TreeBudget:
    tree = await budgets.get(pool, ref.tenant, ref.conversation_id)
    assert tree is not None
    return tree


# limit -> what uses it up exactly, and what a refusal calls it; tool calls refuse no session, as it can do without
LIMITS: dict[str, tuple[Any, dict[str, Any], str | None]] = {
    "deadline": (datetime(2020, 1, 1, tzinfo=UTC), {}, "time"),
    "max_steps": (3, {"steps": 3}, "steps"),
    "max_tokens": (500, {"tokens": 500}, "tokens"),
    "max_cost_usd": (0.25, {"cost_usd": 0.25}, "money"),
    "max_tool_calls": (2, {"tool_calls": 2}, None),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_spent_limit_of_a_tree_refuses_the_next_session(pool: Pool, name: str) -> None:
    assert LIMITS.keys() == NewBudget.model_fields.keys()
    limit, used, said = LIMITS[name]
    more: Any = limit + timedelta(days=36_500) if isinstance(limit, datetime) else limit * 2
    for given, refused in ((limit, said), (more, None)):
        first = new_session()
        if name == "deadline":  # a conversation with a deadline in the past would not begin
            await sessions.accept(pool, Acceptance(session=first, budget=NewBudget(max_steps=9)))
            await pool.execute("UPDATE budgets SET deadline = $2 WHERE conversation_id = $1", first.id, given)
        else:
            await sessions.accept(pool, Acceptance(session=first, budget=NewBudget(**{name: given})))
        await messages.commit_step(pool, step(first.ref, f"{first.id}/1", 2, "done", used=BudgetUse(**used)))
        await sessions.finish_session(pool, ending(first.ref, Reason.GOAL_REACHED))
        answer = await sessions.accept(pool, Acceptance(session=new_session(first.id)))
        assert (answer.budget, answer.session is None) == (refused, refused is not None), given
        # an outcome begins a session all the same, which ends with this reason at its first call
        woken = new_session(first.id).model_copy(update={"trigger": Trigger.CHILD_RESULT})
        if refused:
            assert (await sessions.accept(pool, Acceptance(session=woken))).session is not None


async def test_budget_that_is_set_later_counts_what_was_used_before_and_replaces_every_limit(pool: Pool) -> None:
    first = new_session()
    await sessions.accept(pool, Acceptance(session=first))
    usage = Usage(
        input_tokens=1,
        output_tokens=20,
        cache_read_tokens=300,
        cache_write_tokens=4_000,
        cost_usd=0.5,
        tool_invocations=6,
    )
    ended = ending(first.ref, Reason.GOAL_REACHED).model_copy(update={"usage": usage, "step": 7})
    await sessions.finish_session(pool, ended)
    far = datetime.now(UTC) + timedelta(days=1)
    every: dict[str, Any] = {
        **{"deadline": far, "max_steps": 100, "max_tokens": 90_000, "max_cost_usd": 8.0, "max_tool_calls": 70},
    }
    second = new_session(first.id)
    await sessions.accept(pool, Acceptance(session=second, budget=NewBudget(**every)))
    tree = await tree_of(pool, first.ref)
    used = {"steps": 7, "tokens": 4_321, "cost_usd": 0.5, "tool_calls": 6}
    assert tree.model_dump() == {**every, **used}
    await sessions.finish_session(pool, ending(second.ref, Reason.GOAL_REACHED))
    third = Acceptance(session=new_session(first.id), budget=NewBudget(max_steps=9))
    assert (await sessions.accept(pool, third)).session is not None
    tree = await tree_of(pool, first.ref)
    assert tree.model_dump(include=set(every)) == {**dict.fromkeys(every), "max_steps": 9}


async def test_commit_releases_only_the_reservation_of_its_own_line(pool: Pool, accept: Accept) -> None:
    ref, other = await accept(), await accept()
    for one in (ref, other):
        await budgeted(pool, one, max_tokens=100_000)
        for line in ("main", "main/1.0"):
            assert (await budgets.reserve(pool, one, line, ESTIMATE)).given
    await messages.commit_step(
        pool, step(ref, f"{ref.session_id}/1", 2, "done", used=BudgetUse(tokens=10), line="main")
    )
    assert await held(pool, ref) == (1, 3_000) and await held(pool, other) == (2, 6_000)
    assert (await tree_of(pool, other)).tokens == 0
