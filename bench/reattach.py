"""Reconnecting to a stream: the time from the request to the last of the missed events."""

import json
import time
from statistics import median

from bench.lab import Lab
from bench.ours import counting
from bench.table import Row


async def measure(lab: Lab, rounds: int, steps: int) -> list[Row]:
    """Use an ended task, so that all its events exist; the reader continues from the middle."""
    task_id = await lab.ours.submit(counting(steps), steps + 2)
    await lab.ours.closed(task_id)
    whole = await _read(lab, task_id, 0)
    taken = [median([(await _read(lab, task_id, whole[0] // 2))[1] for _ in range(5)]) for _ in range(rounds)]
    alone = [median([await _healthy(lab) for _ in range(5)]) for _ in range(rounds)]
    return [
        Row(
            f"reattach, {whole[0] - whole[0] // 2} events behind (bare: a request that does nothing)",
            "ms",
            taken,
            alone,
        )
    ]


async def _read(lab: Lab, task_id: str, after: int) -> tuple[int, float]:
    began, seen = time.perf_counter(), after
    async with lab.api.stream("GET", f"/tasks/{task_id}/events", headers={"Last-Event-ID": str(after)}) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                number = json.loads(line.removeprefix("data:"))["seq"]
                if number != seen + 1:
                    raise RuntimeError(f"task {task_id}: event {number} came after {seen}")
                seen = number
    return seen, (time.perf_counter() - began) * 1_000


async def _healthy(lab: Lab) -> float:
    began = time.perf_counter()
    (await lab.api.get("/healthz")).raise_for_status()
    return (time.perf_counter() - began) * 1_000
