"""Daylight saving: the times that Temporal computes for our specification, over both changes of the clock."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from temporalio.client import Schedule, ScheduleActionStartWorkflow, ScheduleState

from domain.ids import new_id
from domain.schedules import Timing
from tests.behaviour.schedules.clock import create, until
from tests.support.stack import Stack
from workflows.schedules import spec_of

pytestmark = pytest.mark.together

BERLIN = ZoneInfo("Europe/Berlin")
FORWARD = datetime(2027, 3, 28, tzinfo=UTC)  # 02:00 becomes 03:00
BACK = datetime(2027, 10, 31, tzinfo=UTC)  # 03:00 becomes 02:00


async def due(stack: Stack, timing: Timing, start: datetime) -> list[datetime]:
    """Return the first times from `start` on; the schedule is paused and never fires."""
    spec = replace(spec_of(timing), start_at=start)
    action = ScheduleActionStartWorkflow("Tick", id=f"dst/{new_id()}", task_queue="nowhere")
    handle = await stack.client.create_schedule(
        f"dst/{new_id()}", Schedule(action=action, spec=spec, state=ScheduleState(paused=True))
    )
    try:
        return list((await handle.describe()).info.next_action_times)
    finally:
        await handle.delete()


async def test_a_daily_time_stays_at_its_clock_time(stack: Stack) -> None:
    timing = Timing(cron="30 7 * * *", timezone="Europe/Berlin")
    for change in (FORWARD, BACK):
        times = (await due(stack, timing, change - timedelta(days=2)))[:4]
        assert [time.astimezone(BERLIN).strftime("%H:%M") for time in times] == ["07:30"] * 4
        assert len({time.hour for time in times}) == 2  # in UTC the hour changes


async def test_a_time_that_does_not_exist_has_no_tick(stack: Stack) -> None:
    times = await due(stack, Timing(cron="30 2 * * *", timezone="Europe/Berlin"), FORWARD - timedelta(days=1))
    days = [time.astimezone(BERLIN).day for time in times[:3]]
    assert days == [27, 29, 30]


async def test_a_time_that_exists_twice_has_one_tick(stack: Stack) -> None:
    times = await due(stack, Timing(cron="30 2 * * *", timezone="Europe/Berlin"), BACK - timedelta(days=1))
    [on_the_day] = [time for time in times if time.astimezone(BERLIN).day == 31]
    assert on_the_day.hour == 1  # in UTC: the second 02:30, after the change


@pytest.mark.exactly_once
@pytest.mark.parametrize(
    ("change", "days", "hours"),
    [
        (datetime(2026, 3, 29, tzinfo=UTC), [28, 30], 23),  # 02:30 does not exist
        (datetime(2025, 10, 26, tzinfo=UTC), [25, 26, 27], 24),  # 02:30 exists twice
    ],
    ids=["forward", "back"],
)
async def test_each_tick_over_a_change_of_the_clock_is_one_message(
    stack: Stack, change: datetime, days: list[int], hours: int
) -> None:
    """A backfill runs three days: a message at half past two, and a check at each hour of the day."""
    berlin: dict[str, Any] = {"timezone": "Europe/Berlin", "overlap": "queue"}
    nightly = await create(stack, cron="30 2 * * *", **berlin)
    hourly = await create(stack, cron="0 * * * *", check={"run": "exit 3"}, **berlin)
    midnight = change.replace(tzinfo=BERLIN)
    after = midnight + timedelta(days=2)
    for made, start, end in (
        (nightly, midnight - timedelta(days=1), after),
        (hourly, midnight - timedelta(minutes=1), midnight + timedelta(days=1) - timedelta(minutes=1)),
    ):
        span = {"start": start.isoformat(), "end": end.isoformat()}
        for _ in range(2):  # the second backfill finds a run for every time
            assert (await stack.http.post(f"/schedules/{made['id']}/backfill", json=span)).status_code == 202

    def inside(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Without the ticks of the present, which the clock itself starts."""
        return [run for run in listed if datetime.fromisoformat(run["scheduled_at"]) < after]

    found = inside(await until(stack, nightly["id"], lambda listed: len(inside(listed)) >= len(days)))
    at = [datetime.fromisoformat(run["scheduled_at"]).astimezone(BERLIN) for run in found]
    assert [(one.day, f"{one:%H:%M}") for one in at] == [(day, "02:30") for day in days]
    for run in found:
        assert (await stack.wait(run["session_id"]))["status"] == "completed"
    count = """SELECT count(*) FROM sessions WHERE conversation_id = $1 AND NOT EXISTS
               (SELECT FROM schedule_runs WHERE session_id = sessions.id AND schedule_id = $2 AND scheduled_at >= $3)"""
    assert await stack.pool.fetchval(count, nightly["conversation_id"], nightly["id"], after) == len(days)
    rows = inside(await until(stack, hourly["id"], lambda listed: len(inside(listed)) >= hours))
    assert len({run["scheduled_at"] for run in rows}) == len(rows) == hours
    for made in (nightly, hourly):
        await stack.http.delete(f"/schedules/{made['id']}")


async def test_intervals_and_utc_times_ignore_daylight_saving(stack: Stack) -> None:
    every, utc = await asyncio.gather(
        due(stack, Timing(every=3_600_000), FORWARD), due(stack, Timing(cron="0 * * * *"), FORWARD)
    )
    for times in (every, utc):
        assert {later - earlier for earlier, later in zip(times, times[1:], strict=False)} == {timedelta(hours=1)}


async def test_day_of_month_and_day_of_week_are_alternatives(stack: Stack) -> None:
    times = await due(stack, Timing(cron="0 9 1 * MON"), datetime(2027, 2, 1, tzinfo=UTC))
    assert [time.day for time in times[:6]] == [1, 8, 15, 22, 1, 8]
