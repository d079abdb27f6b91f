"""Tool calls are claimed before the effect; a superseded attempt can neither act again nor write its result."""

import asyncio
from typing import Any

import pytest

from domain.events import CallAttempt, EventRow, ToolCalled, ToolReturned
from domain.ids import new_id
from domain.sessions.session import CallState, Effect, SessionRef, Usage
from domain.sessions.writes import BudgetUse, ToolCallKey, ToolClaim, ToolCommit
from store import budgets, events, tool_calls
from store.database import Pool, to_json
from tests.behaviour.store.conftest import Accept
from tests.behaviour.store.test_budgets import budgeted
from tests.support.stack import eventually

pytestmark = pytest.mark.exactly_once


def fields(ref: SessionRef, node: str, attempt: int, effect: Effect, holder: str) -> dict[str, Any]:
    return {
        "tenant": ref.tenant,
        "session_id": ref.session_id,
        "node": node,
        "call_index": 0,
        "holder": holder,
        "attempt": attempt,
        "tool": "bash",
        "effect": effect,
    }


def claim(ref: SessionRef, node: str, attempt: int, effect: Effect, holder: str = "run/1", **more: Any) -> ToolClaim:
    return ToolClaim(**fields(ref, node, attempt, effect, holder), unknown="nobody knows", **more)


def outcome(ref: SessionRef, node: str, attempt: int, text: str, effect: Effect = Effect.IDEMPOTENT) -> ToolCommit:
    attempted = claim(ref, node, attempt, effect).model_dump(include={*ToolCallKey.model_fields, "holder", "attempt"})
    return ToolCommit(**attempted, state=CallState.OK, result=text)


async def events_of(pool: Pool, ref: SessionRef) -> list[str]:
    return [one.type for one in await events.of_session(pool, ref.tenant, ref.session_id, 0) if "tool" in one.type]


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT])
async def test_call_is_shown_once_however_many_attempts_claim_it(pool: Pool, accept: Accept, effect: Effect) -> None:
    ref, node = await accept(), new_id()
    for attempt in (1, 2, 3):
        asked = claim(ref, node, attempt, effect)
        called = [EventRow.of(ref, ToolCalled(tool="bash", args=""), by=asked.call_attempt)]
        assert (await tool_calls.claim(pool, asked.model_copy(update={"called": called}))).go
    assert await events_of(pool, ref) == ["tool_called"]


async def test_read_of_a_superseded_attempt_writes_neither_result_nor_events(pool: Pool, accept: Accept) -> None:
    ref, node = await accept(), new_id()
    assert (await tool_calls.claim(pool, claim(ref, node, 2, Effect.READ))).go
    done = {attempt: outcome(ref, node, attempt, f"of {attempt}", Effect.READ) for attempt in (1, 2)}
    for attempt, one in done.items():
        returned = ToolReturned(tool="bash", state=CallState.OK, preview="")
        done[attempt] = one.model_copy(
            update={"events": [EventRow.of(ref, returned, by=CallAttempt(call=one.holder, attempt=attempt))]}
        )
    assert not await tool_calls.commit(pool, done[1])
    assert await tool_calls.commit(pool, done[2])
    assert [one.text for one in await tool_calls.get_results(pool, "default", node)] == ["of 2"]
    assert await events_of(pool, ref) == ["tool_returned"]


async def test_a_read_is_counted_once_in_its_trees_budget(pool: Pool, accept: Accept) -> None:
    """A local activity that runs again after a crash does not know it: its attempt number is the same."""
    ref, node = await accept(), new_id()
    await budgeted(pool, ref, max_tool_calls=1)
    called = [EventRow.of(ref, ToolCalled(tool="bash", args=""))]
    asked = claim(ref, node, 1, Effect.READ, called=called)
    first, again = [await tool_calls.claim(pool, asked) for _ in range(2)]
    assert first.go and again.go and await events_of(pool, ref) == ["tool_called"]
    for text in ("first", "from a worker that woke up late"):  # the second counts as the first, whose answer was lost
        assert await tool_calls.commit(pool, outcome(ref, node, 1, text, Effect.READ))
    assert [one.text for one in await tool_calls.get_results(pool, "default", node)] == ["first"]
    tree = await budgets.get(pool, ref.tenant, ref.conversation_id)
    assert tree is not None and tree.tool_calls == 1
    other = await tool_calls.claim(pool, claim(ref, new_id(), 1, Effect.READ, spent="no more"))
    assert (other.go, other.spent, other.text) == (False, True, "no more")


async def test_cost_of_a_call_is_counted_once_although_its_result_was_lost(pool: Pool, accept: Accept) -> None:
    """As for a search by a model's vendor. The attempt that finds the result still learns what it cost."""
    ref, node = await accept(), new_id()
    await budgeted(pool, ref, max_cost_usd=1)
    assert (await tool_calls.claim(pool, claim(ref, node, 1, Effect.READ))).go
    paid = Usage(llm_calls=1, input_tokens=40, output_tokens=2, cost_usd=0.25)
    used = {"usage": paid, "used": BudgetUse(tokens=paid.tokens, cost_usd=paid.cost_usd)}
    for _ in range(2):  # the second repeats the first, whose answer was lost
        assert await tool_calls.commit(pool, outcome(ref, node, 1, "found", Effect.READ).model_copy(update=used))
    found = await tool_calls.claim(pool, claim(ref, node, 2, Effect.READ))
    assert (found.go, found.text, found.usage) == (False, "found", paid)
    tree = await budgets.get(pool, ref.tenant, ref.conversation_id)
    assert tree is not None and (tree.tokens, tree.cost_usd) == (42, 0.25)


async def test_read_claimed_by_another_attempt_at_the_same_time_is_shown_once(pool: Pool, accept: Accept) -> None:
    """A stuck call is abandoned and started again while its first claim still waits in the database."""
    ref, node = await accept(), new_id()
    await budgeted(pool, ref, max_tool_calls=1)
    asked = claim(ref, node, 1, Effect.READ, called=[EventRow.of(ref, ToolCalled(tool="bash", args=""))])
    async with pool.acquire() as slow:
        stuck = slow.transaction()
        await stuck.start()
        await slow.execute("SELECT claim_tool($1::jsonb)", to_json(asked))
        again = asyncio.create_task(tool_calls.claim(pool, asked.model_copy(update={"holder": "run/2"})))

        async def waits() -> bool:
            return bool(
                await pool.fetchval(
                    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
                )
            )

        await eventually(waits, what="the second claim waits for the first")
        await stuck.commit()
    assert (await again).go
    emitted = await pool.fetchval(
        "SELECT count(*) FROM events WHERE session_id = $1 AND type = 'tool_called'", ref.session_id
    )
    assert emitted == 1


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT])
async def test_repeatable_call_is_claimed_again_and_its_old_attempt_is_fenced(
    pool: Pool, accept: Accept, effect: Effect
) -> None:
    ref, node = await accept(), new_id()
    assert (await tool_calls.claim(pool, claim(ref, node, 1, effect))).go
    assert (await tool_calls.claim(pool, claim(ref, node, 1, effect))).go  # the answer to this claim was lost
    assert (await tool_calls.claim(pool, claim(ref, node, 2, effect))).go
    assert not await tool_calls.commit(pool, outcome(ref, node, 1, "from a worker that woke up late", effect))
    assert await tool_calls.commit(pool, outcome(ref, node, 2, "right", effect))
    assert await tool_calls.commit(pool, outcome(ref, node, 2, "right", effect))  # a repeated commit counts once
    late = await tool_calls.claim(pool, claim(ref, node, 3, effect))
    assert (late.go, late.state, late.text) == (False, "ok", "right")


@pytest.mark.parametrize(("attempt", "holder"), [(2, "run/1"), (1, "another run/1")])
async def test_a_once_call_is_never_claimed_twice(pool: Pool, accept: Accept, attempt: int, holder: str) -> None:
    ref, node = await accept(), new_id()
    assert (await tool_calls.claim(pool, claim(ref, node, 1, Effect.ONCE))).go
    second = await tool_calls.claim(pool, claim(ref, node, attempt, Effect.ONCE, holder))
    assert (second.go, second.state, second.text) == (False, "unknown", "nobody knows")
    assert not await tool_calls.commit(pool, outcome(ref, node, 1, "it had happened after all"))
    [result] = await tool_calls.get_results(pool, "default", node)
    assert (result.state, result.text) == ("unknown", "nobody knows")
