"""Hours of work under faults on one stack, at a low rate (by hand: `python -m tests.faults.soak --minutes 60`).

Each round is checked like a row of the fault bench; memory, database and connections are measured too, to see growth.
"""

import asyncio
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click

from tests.faults import temporal_faults, workload
from tests.faults.matrix import Plan, Size, prepare, run
from tests.faults.nemesis import FAULTS
from tests.support.launch import embedded
from tests.support.stack import Stack

ROUND = Size(rounds=1, at_once=3, faults=2)
PLAN = Plan([*FAULTS.values(), temporal_faults.send_nonsense], (*workload.KINDS, workload.workspaces))
PAUSE_SECONDS = 5.0
HEADS = [
    *("minutes", "rounds", "tasks", "faults", "violations", "slowest recovery"),
    *("worker", "API", "Temporal", "database", "connections"),
]


@dataclass
class Span:
    """The events since the last line of the table, and the memory of the processes at its end."""

    minutes: float
    rounds: int = 0
    tasks: int = 0
    faults: int = 0
    violations: int = 0
    recovery: float = 0.0
    worker_mb: int = 0
    api_mb: int = 0
    temporal_mb: int = 0
    database_mb: int = 0
    connections: int = 0

    async def measure(self, stack: Stack) -> None:
        self.worker_mb, self.api_mb, self.temporal_mb = (
            _megabytes(stack, name) for name in ("worker", "api", "temporal")
        )
        self.database_mb = await stack.pool.fetchval("SELECT pg_database_size(current_database()) / 1000000")
        self.connections = await stack.pool.fetchval("SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL")


def _megabytes(stack: Stack, part: str) -> int:
    status = Path(f"/proc/{stack.pid(part)}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) // 1_000


async def soak(minutes: float, every: float, seed: int) -> int:
    found, begun = 0, time.monotonic()
    click.echo("| " + " | ".join(HEADS) + " |")
    click.echo("|---" * len(HEADS) + "|")
    async with embedded() as stack:
        await prepare(stack)
        span, number = Span(0), 0
        while (passed := (time.monotonic() - begun) / 60) < minutes:
            with tempfile.TemporaryDirectory() as folder:
                row = await run(stack, f"round {number}", seed, ROUND, Path(folder), PLAN)
            number, span.rounds, span.tasks = number + 1, span.rounds + 1, span.tasks + row.tasks
            span.faults, span.recovery = span.faults + row.hits, max(span.recovery, row.recovery or 0)
            span.violations += row.violations.total
            found += row.violations.total
            for line in row.violations.named:
                click.echo(f"round {number}: {line}", err=True)
            await asyncio.sleep(PAUSE_SECONDS)
            if passed - span.minutes >= every or passed >= minutes:
                span.minutes = passed
                await stack.pool.expire_connections()
                await span.measure(stack)
                click.echo(_line(span))
                span = Span(passed)
        await span.measure(stack)
        if span.rounds:
            span.minutes = (time.monotonic() - begun) / 60
            click.echo(_line(span))
    return found


def _line(span: Span) -> str:
    sizes = [f"{value} MB" for value in (span.worker_mb, span.api_mb, span.temporal_mb, span.database_mb)]
    cells = [f"{span.minutes:.0f}", span.rounds, span.tasks, span.faults, span.violations, f"{span.recovery:.1f} s"]
    return "| " + " | ".join(map(str, [*cells, *sizes, span.connections])) + " |"


@click.command(help=__doc__)
@click.option("--minutes", type=float, default=60.0, show_default=True)
@click.option("--every", type=float, default=5.0, show_default=True, help="Minutes between two lines.")
@click.option("--seed", type=int, default=None, help="Decides what happens when; printed.")
def main(minutes: float, every: float, seed: int | None) -> None:
    seed = random.randrange(10**6) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    sys.exit(1 if asyncio.run(soak(minutes, every, seed)) else 0)


if __name__ == "__main__":
    main()
