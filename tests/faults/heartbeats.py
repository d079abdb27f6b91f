"""A backfill of a heartbeat every 15 minutes, while the worker is killed. Every due time must have exactly one row. To
run 30 days with 20 kills by hand: `python -m tests.faults.heartbeats`."""

import asyncio
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from tests.behaviour.schedules.clock import create, show
from tests.support.launch import embedded
from tests.support.stack import Stack

DAYS, KILLS = 30, 20
START = datetime(2026, 3, 1, tzinfo=UTC)
PER_DAY = 24 * 4


async def beat(
    stack: Stack, days: int, kills: int, within_s: float, *, least_kills: int, **rules: Any
) -> tuple[str, list[datetime]]:
    """The schedule, and the due times of its rows in these days, without the ticks that the clock itself started.
    `least_kills`: over a few days, a busy machine may notice too late that another kill is due."""
    made = await create(stack, cron="*/15 * * * *", **rules)
    end = START + timedelta(days=days) - timedelta(minutes=1)
    span = {"start": (START - timedelta(seconds=1)).isoformat(), "end": end.isoformat()}
    answer = await stack.http.post(f"/schedules/{made['id']}/backfill", json=span)
    assert answer.status_code == 202, answer.text

    async def due() -> list[datetime]:
        rows = await stack.pool.fetch(
            "SELECT scheduled_at FROM schedule_runs WHERE schedule_id = $1 AND scheduled_at BETWEEN $2 AND $3",
            made["id"],
            START,
            end,
        )
        return [row["scheduled_at"] for row in rows]

    begun, killed, expected = time.monotonic(), list[int](), days * PER_DAY
    while (count := len(await due())) < expected:
        assert time.monotonic() - begun < within_s, count
        if len(killed) < kills and count > len(killed) * expected // (kills + 1):
            pid = (await asyncio.to_thread(stack.part, "worker")).pid
            if pid is not None and pid not in killed:  # its successor runs
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        await asyncio.sleep(0.1)
    assert len(killed) >= least_kills
    await stack.back("worker", killed[-1])
    return made["id"], await due()


async def main() -> None:
    async with embedded() as stack:
        begun = time.monotonic()
        schedule_id, _ = await beat(stack, DAYS, KILLS, within_s=3_600, least_kills=KILLS, check={"run": "exit 3"})
        seconds = time.monotonic() - begun
        await asyncio.sleep(10)  # a second row for a due time would exist by then
        runs = (await show(stack, schedule_id))["runs"]
        rows = await stack.pool.fetchval(
            "SELECT count(*) FROM schedule_runs WHERE schedule_id = $1 AND scheduled_at < $2",
            schedule_id,
            START + timedelta(days=DAYS),
        )
        click.echo(f"{rows} rows of {DAYS * PER_DAY}, {KILLS} kills, {seconds:.0f} s, {runs}")
        assert rows == DAYS * PER_DAY


if __name__ == "__main__":
    asyncio.run(main())
