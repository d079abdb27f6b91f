"""Time and CPU per step: one session alone, of fifty steps of model and tool and a last model call.

The tool looks into a folder, which is quick; or it writes a file, which goes through Temporal's queue.
"""

import time
from collections.abc import Awaitable, Callable

from bench import cpu
from bench.bare import MODEL_CALL
from bench.lab import Lab
from bench.table import Aim, Row


async def measure(lab: Lab, rounds: int, steps: int) -> list[Row]:
    names = ("ours", "writing", "bare", "calling")
    millis: dict[str, list[float]] = {name: [] for name in names}
    spent: dict[str, list[float]] = {name: [] for name in names}

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
        await lab.ours.check(await run("writing", "worker", lambda: lab.ours.write(steps)), steps)
    rows = _rows(f"step, N={steps}", f"step that writes a file, N={steps}", millis)
    if cpu.measurable():
        rows += _rows("CPU a step (worker + Temporal + PostgreSQL)", "CPU a step that writes a file", spent)
    return rows


def _rows(quick: str, writing: str, taken: dict[str, list[float]]) -> list[Row]:
    bare, calling = taken["bare"], taken["calling"]
    return [
        Row(quick, "ms", taken["ours"], bare, calling, aim=Aim(high=1.3)),
        Row(writing, "ms", taken["writing"], bare, calling),
    ]
