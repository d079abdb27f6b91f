"""Decisions on ticks: one run for each due time, by overlap and context; failures in a row, pauses, deletions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from domain.ids import new_id
from domain.schedules import ContextMode, Overlap, RunStatus, Schedule, ScheduleRules, TickCall
from domain.sessions.session import Reason
from store import conversations, schedule_runs, schedules, sessions, workspaces
from store import sessions as endings
from store.database import Pool
from store.sessions import SessionRow
from tests.behaviour.store.conftest import NEW
from tests.behaviour.store.test_sessions import end, ending

AT = datetime(2026, 1, 1, tzinfo=UTC)


async def create(pool: Pool, **rules: Any) -> Schedule:
    given = ScheduleRules(name=f"s{new_id()}", every=3_600_000, **rules)
    made = await schedules.create(pool, "default", given, NEW, "hello", {}, "ann")
    assert made is not None
    return made


async def again(pool: Pool, schedule: Schedule) -> Schedule:
    found = await schedules.get(pool, "default", schedule.id)
    assert found is not None
    return found


def tick(schedule: Schedule, hour: int = 0) -> TickCall:
    return TickCall(tenant="default", schedule_id=schedule.id, at=AT + timedelta(hours=hour))


async def fire(pool: Pool, schedule: Schedule, hour: int = 0) -> tuple[RunStatus, str, SessionRow | None]:
    fired = await schedule_runs.fire(pool, tick(schedule, hour), "hello")
    assert fired is not None
    run, session = fired
    return run.status, run.reason, session


async def session_of(pool: Pool, schedule: Schedule, hour: int = 0) -> SessionRow:
    status, reason, session = await fire(pool, schedule, hour)
    assert status is RunStatus.FIRED and session is not None, reason
    return session


async def finish(pool: Pool, session: SessionRow, reason: Reason = Reason.GOAL_REACHED) -> None:
    await end(pool, session.ref, reason)


@pytest.mark.parametrize("limit", [1, 3, None])
async def test_schedule_pauses_at_its_number_of_failures_with_one_notice(pool: Pool, limit: int | None) -> None:
    await schedule_runs.settle(pool)  # what other tests left
    made = await create(pool, pause_after_failures=limit, overlap=Overlap.QUEUE)
    for number in range(1, 5):
        session = await session_of(pool, made, number)
        await finish(pool, session, Reason.ERROR)
        assert await schedule_runs.settle(pool) == 1 and await schedule_runs.settle(pool) == 0  # counted once
        found = await again(pool, made)
        assert found.failures == number and found.paused is (limit is not None and number >= limit)
        assert (found.pause_reason is None) is not found.paused
    notices = await pool.fetchval(
        "SELECT count(*) FROM notices WHERE type = 'schedule_paused' AND conversation_id = $1", made.conversation_id
    )
    assert notices == (0 if limit is None else 1)
    resumed = await schedules.set_paused(pool, "default", made.id, False, "ann")
    assert resumed is not None and not resumed.paused and (resumed.failures, resumed.pause_reason) == (0, None)


@pytest.mark.parametrize(
    ("status", "counts"), [(RunStatus.SKIPPED, 0), (RunStatus.STEERED, 0), (RunStatus.FAILED, 1), (RunStatus.FIRED, 0)]
)
async def test_only_a_failed_tick_counts_at_once(pool: Pool, status: RunStatus, counts: int) -> None:
    made = await create(pool)
    for _ in range(2):  # the second is the same tick
        run = await schedule_runs.record(pool, tick(made), status, "why")
        assert run is not None and (run.status, run.reason) == (status, "why")
    assert (await again(pool, made)).failures == counts
    await schedules.set_paused(pool, "default", made.id, True, "ann", "holiday")
    paused = await again(pool, made)
    assert (paused.failures, paused.pause_reason) == (counts, "holiday")  # a pause forgets nothing


@pytest.mark.parametrize("reason", [None, Reason.GOAL_REACHED, Reason.ERROR, Reason.CALLER_CANCEL])
@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE, Overlap.STEER])
async def test_tick_depends_on_the_run_before_only_while_that_runs(
    pool: Pool, overlap: Overlap, reason: Reason | None
) -> None:
    made = await create(pool, overlap=overlap)
    first = await session_of(pool, made)
    if reason is not None:
        await finish(pool, first, reason)
    status, why, second = await fire(pool, made, 1)
    if reason is not None or overlap is Overlap.QUEUE:
        assert status is RunStatus.FIRED and second is not None and second.live is (reason is not None)
    elif overlap is Overlap.SKIP:
        assert (status, why, second) == (RunStatus.SKIPPED, "the run before it is not over", None)
    else:
        assert status is RunStatus.STEERED and second is not None and second.id == first.id
        assert await conversations.find_untaken(pool, "default", [made.message_id(tick(made, 1).at)])
    repeated = await schedule_runs.fire(pool, tick(made, 1), "again")
    assert repeated is not None and repeated[0].status is status
    assert (repeated[1] and repeated[1].id) == (second and second.id)


@pytest.mark.parametrize("read", [False, True])
async def test_message_of_a_tick_is_withdrawn_unless_a_session_reads_it(pool: Pool, read: bool) -> None:
    made = await create(pool, overlap=Overlap.STEER)
    first = await session_of(pool, made)
    assert (await fire(pool, made, 1))[0] is RunStatus.STEERED
    if read:
        taken = "UPDATE inbox SET taken_by = $2 WHERE id = $1"
        await pool.execute(taken, made.message_id(tick(made, 1).at), first.id)
    assert await schedule_runs.unsteer(pool, made, tick(made, 1)) is not read
    assert (await schedule_runs.get(pool, tick(made, 1)) is None) is not read
    assert await schedule_runs.get(pool, tick(made)) is not None


async def test_fork_continues_the_newest_answer_since_the_last_reset(pool: Pool) -> None:
    made = await create(pool, context=ContextMode.FORK, overlap=Overlap.ALLOW)
    root = await session_of(pool, made)
    assert root.conversation_id == made.conversation_id  # later runs fork the first
    mute = ending(root.ref, Reason.ERROR).model_copy(update={"output": None})
    await endings.finish_session(pool, mute)
    second = await session_of(pool, made, 1)
    assert second.conversation_id == made.conversation_id  # nobody has answered so far
    await finish(pool, second)
    third = await session_of(pool, made, 2)
    assert third.conversation_id == third.id and third.parent_session_id == second.id
    await pool.execute("UPDATE conversations SET generation = generation + 1 WHERE id = $1", made.conversation_id)
    fresh = await session_of(pool, made, 3)
    assert fresh.conversation_id == made.conversation_id and fresh.parent_session_id is None


@pytest.mark.parametrize("context", [ContextMode.FORK, ContextMode.ISOLATED])
async def test_run_in_a_conversation_of_its_own_has_the_files_of_the_schedule(pool: Pool, context: ContextMode) -> None:
    made = await create(pool, context=context, overlap=Overlap.ALLOW)
    files: Any = {"notes.md": {"sha256": "0" * 64, "size": 1}}
    async with pool.acquire() as connection, connection.transaction():
        await workspaces.change_in(connection, "default", made.conversation_id, lambda known: {**known, **files})
    first = await session_of(pool, made)
    await finish(pool, first)
    second = await session_of(pool, made, 1)
    assert second.conversation_id == second.id and (second.parent_session_id is None) is (
        context is ContextMode.ISOLATED
    )
    _, manifest = await workspaces.get(pool, "default", second.workspace_id)
    assert list(manifest) == ["notes.md"]


async def test_deleted_schedule_runs_no_more_and_is_not_created_again(pool: Pool) -> None:
    made, other = await create(pool), await create(pool)
    for one in (made, other):
        await schedules.mark_synced(pool, one)
    assert await schedules.delete(pool, "default", made.id, "ann") is not None
    assert await schedule_runs.fire(pool, tick(made), "hello") is None
    assert await schedule_runs.record(pool, tick(made), RunStatus.SKIPPED, "") is None
    assert await schedules.delete(pool, "default", made.id, "ann") is None
    assert await schedules.set_paused(pool, "default", made.id, True, "ann") is None
    gone = await again(pool, made)
    await schedules.mark_synced(pool, gone)
    known = [row["id"] for row in await pool.fetch("SELECT id FROM schedules WHERE id <> ALL($1)", [made.id, other.id])]
    assert await schedules.note_missing(pool, known) == 1
    assert {one.id for one in await schedules.find_unsynced(pool)} & {made.id, other.id} == {other.id}
    assert await schedules.note_missing(pool, known) == 0  # it is noted
    named = made.rules.model_copy(update={"every": 60_000})
    assert await schedules.create(pool, "default", named, NEW, "hello", {}, "ann") is not None  # its name is free
    assert await schedules.create(pool, "default", named, NEW, "hello", {}, "ann") is None


async def test_backfill_covers_its_span_and_no_other_time(pool: Pool) -> None:
    made, other = await create(pool), await create(pool)
    await schedules.note_backfill(pool, made, AT, AT + timedelta(hours=2))
    await schedules.note_backfill(pool, made, AT + timedelta(hours=5), AT + timedelta(hours=6))
    asked = [await schedules.is_backfilled(pool, made, AT + timedelta(hours=hour)) for hour in range(-1, 8)]
    assert asked == [False, True, True, True, False, False, True, True, False]
    assert not await schedules.is_backfilled(pool, other, AT)


async def test_previous_runs_that_are_stopped_are_those_of_the_same_schedule(pool: Pool) -> None:
    made, other = await create(pool, overlap=Overlap.QUEUE), await create(pool)
    first, beside = await session_of(pool, made), await session_of(pool, other)
    queued = await session_of(pool, made, 1)
    assert {one.id for one in await schedule_runs.find_unfinished(pool, "default", made.id)} == {first.id, queued.id}
    await finish(pool, first)
    assert {one.id for one in await schedule_runs.find_unfinished(pool, "default", made.id)} == {queued.id}
    assert await sessions.get(pool, "default", beside.id) is not None
