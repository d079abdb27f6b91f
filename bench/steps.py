"""Time and CPU per step of one session: fifty steps of model and tool, and a last model call.

The tool is a queued activity, as in the bare loop: one that lists a folder, or one that writes a file. Bookkeeping,
which never enters Temporal's queue, has separate rows.
"""

import time
from collections.abc import Awaitable, Callable

from bench import cpu
from bench.bare import MODEL_CALL
from bench.lab import Lab
from bench.table import Aim, Row


async def measure(lab: Lab, rounds: int, steps: int) -> list[Row]:
    names = ("listing", "writing", "bookkeeping", "bare", "unsandboxed", "calling")
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
        await run("unsandboxed", "bare", lambda: lab.bare(steps, workflow="BareLoopUnsandboxed"))
        tasks = [await run("listing", "worker", lambda: lab.ours.count(steps))]
        await run("calling", "bare", lambda: lab.bare(steps, MODEL_CALL))
        tasks.append(await run("writing", "worker", lambda: lab.ours.write(steps)))
        tasks.append(await run("bookkeeping", "worker", lambda: lab.ours.report(steps)))
        for task_id in tasks:
            await lab.ours.check(task_id, steps)
    rows = _rows("step", f", N={steps}", millis, Aim(high=1.5))
    if cpu.measurable():
        rows += _rows("CPU a step", " (worker + Temporal + PostgreSQL)", spent, Aim(high=1.4))
    return rows


def _rows(what: str, more: str, taken: dict[str, list[float]], aim: Aim) -> list[Row]:
    bare, calling = taken["bare"], taken["calling"]
    return [
        Row(f"{what}{more}", "ms", taken["listing"], bare, calling, aim=aim),
        Row(f"{what} (bare: without the SDK's sandbox)", "ms", taken["listing"], taken["unsandboxed"], calling),
        Row(f"{what} that writes a file", "ms", taken["writing"], bare, calling),
        Row(f"{what} with bookkeeping alone", "ms", taken["bookkeeping"], bare, calling),
    ]
