"""Daylight saving: the times that Temporal computes for our specification, over both changes of the clock."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.behaviour.schedules.clock import create, until
from tests.support.stack import Stack

pytestmark = pytest.mark.together

BERLIN = ZoneInfo("Europe/Berlin")


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
