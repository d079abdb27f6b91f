"""Throughput and CPU with more workers and API processes: `python -m bench.scaling`, on one Temporal and PostgreSQL.

All processes share the cores of one machine, so the rate says little beyond its number of cores; the CPU of each part
says which of them would be full first with a core of its own.
"""

import asyncio
import contextlib
import os
import socket
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
import httpx2

from bench import cpu
from bench.lab import Lab, open_lab, process
from bench.ours import PATIENCE, Ours
from bench.throughput import STEPS, rate
from deploy.stack import OFFLINE_KEY, variables
from settings import Settings

PARTS = ("worker", "api", "temporal", "postgres")


@dataclass(frozen=True)
class Scale:
    """One set of processes; CPU in ms per session, of all processes of a part together."""

    workers: int
    apis: int
    sessions_per_second: float
    cpu: dict[str, float]

    @property
    def fullest(self) -> str:
        """The part whose single process is busy for the longest time per session."""
        each = {**self.cpu, "worker": self.cpu["worker"] / self.workers, "api": self.cpu["api"] / self.apis}
        return max(each, key=lambda part: each[part])


async def measure(lab: Lab, folder: Path, workers: int, apis: int, sessions: int, at_once: int) -> Scale:
    async with AsyncExitStack() as opened:
        more_workers = [await opened.enter_async_context(_worker(lab, folder, n)) for n in range(workers - 1)]
        ours = [lab.ours]
        pids = {part: [lab.pids[part]] for part in PARTS}
        pids["worker"] += [one.pid for one in more_workers]
        for number in range(apis - 1):
            started, client = await opened.enter_async_context(_api(lab, folder, number))
            pids["api"].append(started.pid)
            ours.append(Ours(client, lab.temporal))
        if more_workers:
            await asyncio.sleep(4)  # their pollers reach Temporal
        turn = iter(range(10**6))

        async def session() -> str:
            return await ours[next(turn) % len(ours)].count(STEPS)

        await rate(session, at_once, at_once)  # all of them have run their code
        before = {part: cpu.seconds(found) for part, found in pids.items()}
        per_second, _ = await rate(session, sessions, at_once)
        spent = {part: (cpu.seconds(found) - before[part]) / sessions * 1_000 for part, found in pids.items()}
    return Scale(workers, apis, per_second, spent)


def _settings(lab: Lab) -> Settings:
    address = lab.temporal.service_client.config.target_host
    found = replace(lab.settings, temporal_address=address, anthropic_base_url=lab.model_url)
    return replace(found, anthropic_api_key=OFFLINE_KEY, database_url=lab.database_url)


@asynccontextmanager
async def _worker(lab: Lab, folder: Path, number: int) -> AsyncIterator[Process]:
    async with process(f"worker-{number}", "worker", variables(_settings(lab)), folder) as started:
        yield started


@asynccontextmanager
async def _api(lab: Lab, folder: Path, number: int) -> AsyncIterator[tuple[Process, httpx2.AsyncClient]]:
    settings = replace(_settings(lab), port=_free_port())
    url = f"http://127.0.0.1:{settings.port}"
    async with (
        process(f"api-{number}", "api", variables(settings), folder) as started,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        for _ in range(300):
            with contextlib.suppress(httpx2.TransportError):
                if (await client.get("/readyz")).is_success:
                    break
            await asyncio.sleep(0.1)
        yield started, client


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def as_text(scales: Sequence[Scale]) -> str:
    head = f"{'workers':>7} {'APIs':>5} {'sessions/s':>11}  " + "  ".join(f"{part:>10}" for part in PARTS) + "  fullest"
    lines = [
        f"{one.workers:>7} {one.apis:>5} {one.sessions_per_second:>11.2f}  "
        + "  ".join(f"{one.cpu[part]:>10.1f}" for part in PARTS)
        + f"  {one.fullest}"
        for one in scales
    ]
    return "\n".join([f"sessions of {STEPS} steps; CPU in ms per session; {os.cpu_count()} cores", head, *lines])


@click.command()
@click.option("--workers", type=click.IntRange(min=1), multiple=True, default=(1, 2, 4), show_default=True)
@click.option("--apis", type=click.IntRange(min=1), multiple=True, default=(1, 2), show_default=True)
@click.option("--sessions", default=60, show_default=True)
@click.option("--at-once", default=20, show_default=True)
def main(workers: tuple[int, ...], apis: tuple[int, ...], sessions: int, at_once: int) -> None:
    """Measure every number of workers with every number of API processes."""

    async def run() -> list[Scale]:
        async with open_lab() as lab:
            folder = lab.settings.workspaces_dir.parent
            return [
                await measure(lab, folder, many, several, sessions, at_once) for several in apis for many in workers
            ]

    click.echo(as_text(asyncio.run(run())))


if __name__ == "__main__":
    main()
