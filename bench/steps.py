"""Time and CPU per step: one session alone, of fifty steps of model and tool and a last model call."""

import time
from collections.abc import Awaitable, Callable

from bench import cpu
from bench.bare import MODEL_CALL
from bench.lab import Lab
from bench.table import Aim, Row


async def measure(lab: Lab, rounds: int, steps: int) -> list[Row]:
    millis: dict[str, list[float]] = {"ours": [], "bare": [], "calling": []}
    spent: dict[str, list[float]] = {"ours": [], "bare": [], "calling": []}

    async def run(name: str, worker: str, session: Callable[[], Awaitable[str]]) -> str:
        busy, began = lab.cpu(worker), time.perf_counter()
        done = await session()
        millis[name].append((time.perf_counter() - began) / steps * 1_000)
        spent[name].append((lab.cpu(worker) - busy) / steps * 1_000)
        return done

    for _ in range(rounds):
        await run("bare", "bare", lambda: lab.bare(steps))
        task_id = await run("ours", "worker", lambda: lab.ours.count(steps))
        await run("calling", "bare", lambda: lab.bare(steps, MODEL_CALL))
        await lab.ours.check(task_id, steps)
    rows = [Row(f"step, N={steps}", "ms", **millis, aim=Aim(high=1.5))]
    if cpu.measurable():
        rows.append(Row("CPU a step (worker + Temporal + PostgreSQL)", "ms", **spent, aim=Aim(high=1.5)))
    return rows
