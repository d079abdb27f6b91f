"""One long session: what a step costs at its 100th, 500th, 1,000th and 2,000th, while the context grows by 1 KB a step
and is compacted now and then."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

from bench import cpu
from bench.lab import Lab
from bench.ours import counting
from bench.table import Aim, Row
from domain.events import Recorded
from store import events

TENANT = "default"
GROW = 1_024
OVER = 50  # steps whose mean is taken: the last ones up to each mark
SECONDS_A_STEP = 3.0  # maximum before the measurement fails


async def measure(lab: Lab, marks: Sequence[int]) -> list[Row]:
    most = marks[-1]
    before = cpu.resident(lab.pids["worker"]) if cpu.measurable() else 0
    task_id = await lab.ours.submit(counting(most - 1, grow=GROW), most)
    async with asyncio.timeout(60 + SECONDS_A_STEP * most):
        await lab.ours.check(task_id, most - 1)  # the last step is the answer
    taken = await _millis(lab, task_id)
    means = [sum(taken[max(0, mark - OVER) : mark]) / min(mark, OVER) for mark in marks]
    rows = [
        Row(f"step up to number {mark} of one session", "ms", [mean]) for mark, mean in zip(marks, means, strict=True)
    ]
    rows.append(
        Row("slowest to fastest of these", "ratio", [max(means) / min(means)], aim=Aim(high=1.2, of_value=True))
    )
    if before:
        grown = max(1, cpu.resident(lab.pids["worker"]) - before) / 1_048_576
        rows.append(Row(f"worker memory after {most} steps of one session", "MB", [grown]))
    return rows


async def _millis(lab: Lab, task_id: str) -> list[float]:
    """The time of each step, from its beginning to that of the next, or to the end of the session."""
    seen: list[Recorded] = []
    while page := await events.of_session(lab.pool, TENANT, task_id, seen[-1].seq if seen else 0, limit=5_000):
        seen += page
    moments = [event.at for event in seen if event.type in ("step_started", "task_completed")]
    return [(after - began).total_seconds() * 1_000 for began, after in pairwise(moments)]
