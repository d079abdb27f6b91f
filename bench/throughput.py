"""Sessions per second: many short sessions, a fixed number of them concurrently."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.bare import MODEL_CALL
from bench.lab import Lab
from bench.table import Aim, Row

STEPS = 3


async def measure(lab: Lab, rounds: int, sessions: int, at_once: int) -> list[Row]:
    ours: list[float] = []
    bare: list[float] = []
    calling: list[float] = []
    for _ in range(rounds):
        bare.append((await rate(lambda: lab.bare(STEPS), sessions, at_once))[0])
        per_second, tasks = await rate(lambda: lab.ours.count(STEPS), sessions, at_once)
        ours.append(per_second)
        calling.append((await rate(lambda: lab.bare(STEPS, MODEL_CALL), sessions, at_once))[0])
        for task_id in tasks:
            await lab.ours.check(task_id, STEPS)
    return [Row(f"sessions of {STEPS} steps, {at_once} at once", "1/s", ours, bare, calling, Aim(low=0.75))]


async def rate(session: Callable[[], Awaitable[str]], sessions: int, at_once: int) -> tuple[float, list[str]]:
    gate, done = asyncio.Semaphore(at_once), []

    async def one() -> None:
        async with gate:
            done.append(await session())

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(sessions)))
    return sessions / (time.perf_counter() - began), done
