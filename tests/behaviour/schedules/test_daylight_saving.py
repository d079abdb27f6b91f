"""Daylight saving: the times that Temporal itself computes for our specification, over both changes of the clock."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from temporalio.client import Schedule, ScheduleActionStartWorkflow, ScheduleState

from domain.ids import new_id
from domain.schedules.schedule import Timing
from tests.support.stack import Stack
from workflows.schedule_client import spec_of

BERLIN = ZoneInfo("Europe/Berlin")
FORWARD = datetime(2027, 3, 28, tzinfo=UTC)  # 02:00 becomes 03:00
BACK = datetime(2027, 10, 31, tzinfo=UTC)  # 03:00 becomes 02:00


async def due(stack: Stack, timing: Timing, start: datetime) -> list[datetime]:
    """The first times from `start` on; the schedule is paused and never fires."""
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
        assert len({time.hour for time in times}) == 2  # in UTC it moved


async def test_a_time_that_does_not_exist_has_no_tick(stack: Stack) -> None:
    times = await due(stack, Timing(cron="30 2 * * *", timezone="Europe/Berlin"), FORWARD - timedelta(days=1))
    days = [time.astimezone(BERLIN).day for time in times[:3]]
    assert days == [27, 29, 30]


async def test_a_time_that_exists_twice_has_one_tick(stack: Stack) -> None:
    times = await due(stack, Timing(cron="30 2 * * *", timezone="Europe/Berlin"), BACK - timedelta(days=1))
    [on_the_day] = [time for time in times if time.astimezone(BERLIN).day == 31]
    assert on_the_day.hour == 1  # in UTC: the second one, after the change


async def test_an_interval_and_utc_do_not_move(stack: Stack) -> None:
    every, utc = await asyncio.gather(
        due(stack, Timing(every=3_600_000), FORWARD), due(stack, Timing(cron="0 * * * *"), FORWARD)
    )
    for times in (every, utc):
        assert {later - earlier for earlier, later in zip(times, times[1:], strict=False)} == {timedelta(hours=1)}


async def test_both_kinds_of_days_are_alternatives(stack: Stack) -> None:
    times = await due(stack, Timing(cron="0 9 1 * MON"), datetime(2027, 2, 1, tzinfo=UTC))
    assert [time.day for time in times[:6]] == [1, 8, 15, 22, 1, 8]
