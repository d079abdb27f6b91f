"""The cost of idle conversations and schedules: `python -m bench.daemons` starts a separate stack and measures."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import click
import httpx2

from bench import cpu, scratch
from bench.lab import Lab, open_lab
from domain.sessions.new_session import Trigger

AT_ONCE = 12
TRIES = 600
IDLE_SECONDS = 30
WARM_UP = 200  # warm-up conversations that are not counted: the worker first grows to its normal size
SAY = "[[script:say text=done]]"
PARTS = ("worker", "temporal", "postgres")


@dataclass(frozen=True)
class Reading:
    memory: dict[str, int]  # resident bytes of each part
    processes: int
    database: int  # bytes of our database on disk
    cpu: float

    @classmethod
    async def take(cls, lab: Lab) -> "Reading":
        return cls(
            memory={part: cpu.resident(lab.pids[part]) for part in PARTS},
            processes=len(cpu.tree([lab.pids["worker"], lab.pids["api"]])),
            database=await scratch.database_bytes(lab.pool),
            cpu=lab.cpu("worker"),
        )


async def _each(count: int, act: Callable[[int], Awaitable[httpx2.Response]]) -> None:
    """Send this many requests, a few at a time; a request that is refused for now is repeated."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with room:
            for _ in range(TRIES):
                answer = await act(number)
                if answer.status_code not in (429, 503):
                    answer.raise_for_status()
                    return
                await asyncio.sleep(0.5)
            raise TimeoutError(answer.text)

    await asyncio.gather(*(one(number) for number in range(count)))


async def _until(look: Callable[[], Awaitable[int]], count: int) -> None:
    for _ in range(TRIES * 4):
        if (found := await look()) >= count:
            return
        await asyncio.sleep(0.5)
    raise TimeoutError(f"{found} of {count}")


async def _conversations(lab: Lab, count: int) -> None:
    made = await lab.api.put("/connectors/bench", json={"kind": "webhook", "agent": "assistant"})
    made.raise_for_status()

    async def talk(number: int, room: str) -> None:
        path = f"/channels/bench/{room}/user-"
        await _each(number, lambda one: lab.api.post(f"{path}{one}/messages", json={"text": SAY}))

    await talk(WARM_UP, "warm-up")
    await _until(lambda: scratch.count_completed(lab.pool, Trigger.CHANNEL), WARM_UP)
    await asyncio.sleep(IDLE_SECONDS)  # workflows without work close
    before = await Reading.take(lab)
    begun = time.monotonic()
    await talk(count, "room")
    await _until(lambda: scratch.count_completed(lab.pool, Trigger.CHANNEL), WARM_UP + count)
    took = time.monotonic() - begun
    await asyncio.sleep(IDLE_SECONDS)
    after = await Reading.take(lab)
    running = await lab.temporal.count_workflows("ExecutionStatus = 'Running' AND WorkflowType = 'Conversation'")
    click.echo(f"\n{count} idle conversations, one message each, answered in {took:.0f} s:")
    click.echo(f"  processes of worker and API: {before.processes} before, {after.processes} after")
    click.echo(f"  open workflows of conversations: {running.count}")
    _growth(before, after, count, "conversation")


async def _schedules(lab: Lab, count: int, ticks: int) -> None:
    task = {"agent": "assistant", "input": SAY}
    before = await Reading.take(lab)
    await _each(
        count,
        lambda number: lab.api.post(
            "/schedules",
            json={"name": f"s{number}", "every": 86_400_000, "task": task, "check": {"run": "exit 3"}},
        ),
    )
    made = await Reading.take(lab)
    click.echo(f"\n{count} schedules:")
    _growth(before, made, count, "schedule")
    await asyncio.sleep(IDLE_SECONDS)
    idle = await Reading.take(lab)
    per_second = (idle.cpu - made.cpu) / IDLE_SECONDS
    click.echo(f"  CPU while nothing is due: {per_second * 1_000:.1f} ms a second, all schedules together")
    ids = sorted(await scratch.schedule_ids(lab.pool))
    start = await Reading.take(lab)
    for round in range(ticks):
        await _each(count, lambda number: lab.api.post(f"/schedules/{ids[number]}/trigger"))
        await _until(lambda: scratch.schedule_runs(lab.pool), count * (round + 1))
    end = await Reading.take(lab)
    number = count * ticks
    rows = await scratch.schedule_runs(lab.pool)
    click.echo(f"\n{number} ticks whose check finds nothing: {rows} rows")
    click.echo(f"  CPU per tick: {(end.cpu - start.cpu) / number * 1_000:.1f} ms (worker, Temporal, PostgreSQL)")
    click.echo(f"  database per tick: {(end.database - start.database) / number:,.0f} bytes")


def _growth(before: Reading, after: Reading, count: int, unit: str) -> None:
    for part in PARTS:
        grown = (after.memory[part] - before.memory[part]) / count / 1024
        click.echo(f"  memory of {part} per {unit}: {grown:.1f} kB")
    click.echo(f"  database per {unit}: {(after.database - before.database) / count / 1024:.1f} kB on disk")


@click.command()
@click.option("--conversations", default=1_000, show_default=True)
@click.option("--schedules", default=200, show_default=True)
@click.option("--ticks", default=3, show_default=True, help="Of each schedule.")
def main(conversations: int, schedules: int, ticks: int) -> None:
    """Measure idle conversations, schedules and their ticks."""

    async def measure() -> None:
        async with open_lab() as lab:
            await _schedules(lab, schedules, ticks)
            await _conversations(lab, conversations)

    asyncio.run(measure())


if __name__ == "__main__":
    main()
