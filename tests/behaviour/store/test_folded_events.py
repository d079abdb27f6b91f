"""Deltas of ended sessions are folded into fewer rows, and no reader sees a difference."""

import asyncio
import random
from datetime import timedelta

import pytest

from domain.events import Event, EventRow, MessageDelta, Progress, Recorded, ThinkingDelta
from domain.sessions.session import SessionRef
from store import events, folded_events, retention
from store.database import Pool, current_tenant
from tests.behaviour.store.conftest import Accept
from tests.behaviour.store.test_deliveries import DONE
from tests.behaviour.store.test_lock_order import held
from tests.behaviour.store.test_roles import api, url  # noqa: F401  fixtures
from tests.behaviour.store.test_trees import accepted, child_of, ref_of

Log = list[list[Recorded]]


def texts(count: int, step: int = 1) -> list[Event]:
    return [MessageDelta(step=step, text=f"piece {number} ") for number in range(count)]


async def write(pool: Pool, ref: SessionRef, *wanted: Event) -> None:
    await events.append(pool, "", [EventRow.of(ref, event) for event in wanted])


async def rows(pool: Pool, ref: SessionRef) -> int:
    found: int = await pool.fetchval("SELECT count(*) FROM events WHERE conversation_id = $1", ref.conversation_id)
    return found


async def fold(pool: Pool, *refs: SessionRef) -> None:
    for ref in refs:
        assert await folded_events.fold_session(pool, ref.tenant, ref.session_id)


async def everything(pool: Pool, refs: list[SessionRef], limits: tuple[int, ...]) -> Log:
    """What readers get of the conversation and of its sessions, from every number and in pages of these sizes."""
    [first, *_] = refs
    last = await events.head_of_conversation(pool, first.tenant, first.conversation_id)
    found = []
    for limit in limits:
        for after in range(last + 1):
            found.append(await events.of_conversation(pool, first.tenant, first.conversation_id, after, limit))
    for ref in refs:
        head = await events.head_of_session(pool, ref.tenant, ref.session_id)
        assert head is not None
        for limit in limits:
            for after in range(head[0] + 1):
                found.append(await events.of_session(pool, ref.tenant, ref.session_id, after, limit))
                found.append(await events.without_deltas(pool, ref.tenant, ref.session_id, limit, after))
    return found


async def streaming_at_once(pool: Pool, root: SessionRef, seed: int) -> list[SessionRef]:
    """Sessions of one conversation whose deltas are mixed, each with other events between them; all have ended."""
    chance = random.Random(seed)
    children = [child_of(root) for _ in range(3)]
    assert await accepted(pool, *children) == [True] * 3
    refs = [root, *(ref_of(child) for child in children)]
    steps = dict.fromkeys((ref.session_id for ref in refs), 1)
    for _ in range(60):
        batch = []
        for _ in range(chance.randint(1, 8)):
            ref = chance.choice(refs)
            step = steps[ref.session_id]
            kinds = [MessageDelta(step=step, text="é\x00 "), ThinkingDelta(step=step, text="hm"), Progress(message="p")]
            batch.append(EventRow.of(ref, chance.choices(kinds, weights=[20, 2, 1])[0]))
            steps[ref.session_id] += chance.random() < 0.02
        await events.append(pool, "", batch)
    for ref in refs:
        await write(pool, ref, DONE)
    return refs


@pytest.mark.proves("S0-B10", "S0-B16")
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_readers_see_no_difference_from_any_number(pool: Pool, accept: Accept, seed: int) -> None:
    refs = await streaming_at_once(pool, await accept(), seed)
    if seed == 3:  # a log of a version that had one table for all events
        await pool.execute(
            "WITH moved AS (DELETE FROM live_deltas WHERE conversation_id = $1 RETURNING *)"
            " INSERT INTO events SELECT * FROM moved",
            refs[0].conversation_id,
        )
    limits = (1, 10, 90)
    before, stored = await everything(pool, refs, limits), await rows(pool, refs[0])
    await fold(pool, *refs[:2])
    assert await everything(pool, refs, limits) == before  # some of its sessions are folded, others are not
    await fold(pool, *refs[2:])
    assert await everything(pool, refs, limits) == before
    assert await rows(pool, refs[0]) < stored / 2


async def test_pages_after_removed_events_have_everything(pool: Pool, accept: Accept) -> None:
    """Numbers of a conversation whose earlier content was removed have gaps before the sessions that follow."""
    refs = await streaming_at_once(pool, await accept(), seed=4)
    await pool.execute("DELETE FROM events WHERE conversation_id = $1 AND conv_seq % 50 < 40", refs[0].conversation_id)
    before = await everything(pool, refs, (5,))
    await fold(pool, *refs)
    assert await everything(pool, refs, (5,)) == before


async def test_page_reads_no_more_rows_than_it_needs(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    for step in range(40):
        await write(pool, ref, *texts(150, step))
    await write(pool, ref, DONE)
    before = await events.of_session(pool, ref.tenant, ref.session_id, 0, 10_000)
    await fold(pool, ref)
    assert await events.of_session(pool, ref.tenant, ref.session_id, 0, 10_000) == before
    assert await pool.fetchval("SELECT count(*) FROM live_deltas WHERE session_id = $1", ref.session_id) == 0
    for statement in (events._OF_SESSION, events._OF_CONVERSATION):
        found = await pool.fetch(statement, ref.tenant, ref.session_id, 1_000, 200)
        assert sum(row["folded"] or 1 for row in found) < 200 + 4 * folded_events.SPAN
        plan = "\n".join(row[0] for row in await pool.fetch(f"EXPLAIN {statement}", ref.tenant, ref.session_id, 0, 200))
        assert "Merge Append" in plan and plan.count("Index Scan") == 2 and "->  Sort" not in plan, plan


async def test_session_is_folded_once_and_only_after_its_end(pool: Pool, accept: Accept) -> None:
    ref, other = await accept(), await accept()
    await write(pool, ref, *texts(300))
    assert not await folded_events.fold_session(pool, ref.tenant, ref.session_id)
    assert await rows(pool, ref) == 300
    await write(pool, ref, DONE)
    due = [(ref.tenant, ref.session_id)]
    assert due[0] not in await folded_events.due(pool, timedelta(minutes=1), 10_000)  # it has only just ended
    listed = await folded_events.due(pool, timedelta(0), 10_000)
    assert due[0] in listed and (other.tenant, other.session_id) not in listed
    both = (folded_events.fold_session(pool, ref.tenant, ref.session_id) for _ in range(2))
    assert sorted(await asyncio.gather(*both)) == [False, True]
    assert await rows(pool, ref) == 4
    assert due[0] not in await folded_events.due(pool, timedelta(0), 10_000)


async def test_fold_that_is_cut_off_changes_nothing(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    await write(pool, ref, *texts(100), DONE)
    before = await everything(pool, [ref], (200,))
    async with held(pool, "events", f"session_id = '{ref.session_id}' AND seq = 5") as others:
        await others.begin(folded_events.fold_session(pool, ref.tenant, ref.session_id))
        assert await everything(pool, [ref], (200,)) == before  # readers wait for nothing
        others.begun[0].cancel()
        await asyncio.wait(others.begun)
    assert await rows(pool, ref) == 101
    assert (ref.tenant, ref.session_id) in await folded_events.due(pool, timedelta(0), 10_000)
    await fold(pool, ref)
    assert await everything(pool, [ref], (200,)) == before


@pytest.mark.parametrize("removed_first", [True, False])
async def test_content_removed_meanwhile_stays_removed(pool: Pool, accept: Accept, removed_first: bool) -> None:
    ref = await accept()
    await write(pool, ref, *texts(50), DONE)
    await pool.execute(
        "UPDATE sessions SET status = 'completed', live = false, keep_until = now() - interval '1 s' WHERE id = $1",
        ref.session_id,
    )
    both = {
        "remove": retention.remove_content(pool, ref.tenant, ref.conversation_id),
        "fold": folded_events.fold_session(pool, ref.tenant, ref.session_id),
    }
    async with held(pool, "events", f"session_id = '{ref.session_id}' AND seq = 1") as others:
        for name in sorted(both, reverse=removed_first):
            await others.begin(both[name])
    assert [task.result() for task in others.begun] == [True, not removed_first]
    assert await rows(pool, ref) == 0
    assert (ref.tenant, ref.session_id) not in await folded_events.due(pool, timedelta(0), 10_000)


async def test_deltas_of_another_tenant_are_not_shown(accept: Accept, pool: Pool, api: Pool) -> None:  # noqa: F811
    foreign = await accept("b")
    await write(pool, foreign, *texts(50), DONE)
    tables = "SELECT (SELECT count(*) FROM unfolded_sessions), (SELECT count(*) FROM live_deltas) > 0"

    async def seen(tenant: str) -> tuple[int, int]:
        token = current_tenant.set(tenant)
        session = await events.of_session(api, "b", foreign.session_id, 0)
        conversation = await events.of_conversation(api, "b", foreign.conversation_id, 0)
        waiting, deltas = await api.fetchrow(tables) or (0, False)
        assert bool(waiting) == deltas == (tenant == "b")
        current_tenant.reset(token)
        return len(session), len(conversation)

    assert [await seen("a"), await seen("b")] == [(0, 0), (51, 51)]
    other = await accept("b")
    await write(pool, other, *texts(2), DONE)  # so that the tables are not empty
    await fold(pool, foreign)
    assert [await seen("a"), await seen("b")] == [(0, 0), (51, 51)]
