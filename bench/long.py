"""One long session: what a step of each quarter costs, while the context grows by 1 KB a step and is compacted every
few hundred steps. A whole quarter is taken, because a step costs more just before a compaction than just after one.
The stand-in for the model reads the whole context each time; so its own CPU time is shown, and the steps are also
compared without it."""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise
from operator import itemgetter

from bench import cpu
from bench.lab import Lab
from bench.ours import counting
from bench.table import Aim, Row
from domain.events import Recorded
from store import events

TENANT = "default"
GROW = 1_024
EVERY_S = 0.5  # between two looks at the stand-in's CPU time
SECONDS_A_STEP = 3.0  # maximum before the measurement fails

Sample = tuple[datetime, float]


async def measure(lab: Lab, marks: Sequence[int]) -> list[Row]:
    most = marks[-1]
    before = cpu.resident(lab.pids["worker"]) if cpu.measurable() else 0
    task_id = await lab.ours.submit(counting(most - 1, grow=GROW), most)
    async with _sampled(lab.pids.get("model")) as samples, asyncio.timeout(60 + SECONDS_A_STEP * most):
        await lab.ours.check(task_id, most - 1)  # the last step is the answer
    moments = await _moments(lab, task_id)
    rows, means, own = [], [], []
    for last, mark in pairwise((0, *marks)):
        began, ended = moments[last], moments[mark]
        steps = mark - last
        means.append((ended - began).total_seconds() * 1_000 / steps)
        rows.append(Row(f"steps {last + 1} to {mark} of one session", "ms", [means[-1]]))
        if samples:
            model = (_at(samples, ended) - _at(samples, began)) * 1_000 / steps
            own.append(max(means[-1] - model, 0.1))
            rows.append(Row("    of this CPU time of the stand-in", "ms", [model]))
    aim = Aim(high=1.2, of_value=True)
    rows.append(Row("slowest to fastest of these", "ratio", [max(means) / min(means)], aim=aim))
    if own:
        rows.append(Row("slowest to fastest without the stand-in", "ratio", [max(own) / min(own)], aim=aim))
    if before:
        grown = max(1, cpu.resident(lab.pids["worker"]) - before) / 1_048_576
        rows.append(Row(f"worker memory after {most} steps of one session", "MB", [grown]))
    return rows


async def _moments(lab: Lab, task_id: str) -> list[datetime]:
    """When each step began, and the end of the session."""
    seen: list[Recorded] = []
    while page := await events.of_session(lab.pool, TENANT, task_id, seen[-1].seq if seen else 0, limit=5_000):
        seen += page
    return [event.at for event in seen if event.type in ("step_started", "task_completed")]


@asynccontextmanager
async def _sampled(pid: int | None) -> AsyncIterator[list[Sample]]:
    """The CPU seconds that a process had used at several moments; none where they cannot be measured."""
    if pid is None or not cpu.measurable():
        yield []
        return
    samples: list[Sample] = []

    async def sample() -> None:
        while True:
            samples.append((datetime.now(UTC), cpu.seconds([pid])))
            await asyncio.sleep(EVERY_S)

    sampling = asyncio.create_task(sample())
    try:
        yield samples
    finally:
        sampling.cancel()
        samples.append((datetime.now(UTC), cpu.seconds([pid])))


def _at(samples: list[Sample], moment: datetime) -> float:
    """The CPU seconds at a moment, between two samples in proportion."""
    after = min(max(bisect_left(samples, moment, key=itemgetter(0)), 1), len(samples) - 1)
    (earlier, less), (later, more) = samples[after - 1], samples[after]
    share = (moment - earlier) / (later - earlier)
    return less + (more - less) * min(max(share, 0), 1)
