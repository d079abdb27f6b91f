"""30 days of a heartbeat every 15 minutes, by a backfill, while the worker is killed 20 times (by hand: `python -m
tests.faults.heartbeats`). Every due time must have exactly one row."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import click

from tests.behaviour.schedules.clock import create, show
from tests.support.launch import embedded
from tests.support.stack import Stack

DAYS, KILLS = 30, 20
START = datetime(2026, 3, 1, tzinfo=UTC)
ROWS = DAYS * 24 * 4


async def rows(stack: Stack, schedule_id: str) -> int:
    """Only the ticks of the month: the clock's own ticks in between are not counted."""
    count: int = await stack.pool.fetchval(
        "SELECT count(*) FROM schedule_runs WHERE schedule_id = $1 AND scheduled_at BETWEEN $2 AND $3",
        schedule_id,
        START,
        START + timedelta(days=DAYS),
    )
    return count


async def main() -> None:
    async with embedded() as stack:
        made = await create(stack, cron="*/15 * * * *", check={"run": "exit 3"})
        begun = time.monotonic()
        end = START + timedelta(days=DAYS) - timedelta(minutes=1)
        span = {"start": (START - timedelta(seconds=1)).isoformat(), "end": end.isoformat()}
        answer = await stack.http.post(f"/schedules/{made['id']}/backfill", json=span)
        assert answer.status_code == 202, answer.text
        kills = 0
        while (count := await rows(stack, made["id"])) < ROWS:
            assert time.monotonic() - begun < 1_800, count
            if kills < KILLS and count >= (kills + 1) * ROWS // (KILLS + 1):
                await stack.kill("worker")
                kills += 1
            await asyncio.sleep(0.2)
        seconds = time.monotonic() - begun
        await asyncio.sleep(10)  # whatever would come twice has come by then
        found = await rows(stack, made["id"])
        click.echo(f"{found} rows of {ROWS}, {kills} kills, {seconds:.0f} s, {(await show(stack, made['id']))['runs']}")
        assert found == ROWS


if __name__ == "__main__":
    asyncio.run(main())
