"""Decisions on ticks: one run for each due time, by overlap and context; failures in a row, pauses, deletions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from domain.ids import new_id
from domain.schedules import ContextMode, Overlap, RunStatus, Schedule, ScheduleRules, TickCall
from domain.sessions.session import Reason
from store import schedule_runs, schedules, workspaces
from store.database import Pool
from store.sessions import SessionRow
from tests.behaviour.store.conftest import NEW
from tests.behaviour.store.test_sessions import end

AT = datetime(2026, 1, 1, tzinfo=UTC)


async def create(pool: Pool, **rules: Any) -> Schedule:
    given = ScheduleRules(name=f"s{new_id()}", every=3_600_000, **rules)
    made = await schedules.create(pool, "default", given, NEW, "hello", {}, "ann")
    assert made is not None
    return made


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
