"""Budgets of trees: reserved under a lock, settled once, released at the end."""

import asyncio
import json

import pytest

from domain.limits.budget import CallEstimate
from domain.sessions.session import Reason, SessionRef
from domain.sessions.step_writes import BudgetUse
from store import budgets, endings, messages
from store.database import Pool
from tests.behaviour.store.conftest import Accept
from tests.behaviour.store.test_messages import step
from tests.behaviour.store.test_sessions import ending

ESTIMATE = CallEstimate(input_tokens=1_000, output_tokens=2_000)


async def budgeted(pool: Pool, ref: SessionRef, **limits: float) -> None:
    tree = json.dumps({"low_percent": 20, **limits})
    await pool.fetchval("SELECT enter_budget($1, $2, $3::jsonb)", ref.tenant, ref.conversation_id, tree)


async def held(pool: Pool, ref: SessionRef) -> tuple[int, int]:
    found = await budgets.held(pool, ref.tenant, ref.conversation_id)
    return found.calls, found.tokens


@pytest.mark.proves("S1-63")
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
    await endings.finish(pool, ending(ref, Reason.ERROR))
    assert await held(pool, ref) == (0, 0)


async def test_tree_without_a_budget_keeps_no_reservations(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    assert (await budgets.reserve(pool, ref, "main", ESTIMATE)).output_tokens == ESTIMATE.output_tokens
    assert await held(pool, ref) == (0, 0) and await budgets.get(pool, ref.tenant, ref.conversation_id) is None
