"""Latency from a delta of the model to a reader of the events: the model puts the time into its text."""

import asyncio
import json
import time
from statistics import quantiles

from activities.events import INTERVAL
from bench.lab import Lab
from bench.table import Row

# seconds between the deltas of a reply: longer than a flush, and few enough steps not to load the machine
DELAY = 0.3


async def measure(lab: Lab, rounds: int, readers: int, replies: int) -> list[Row]:
    half: list[float] = []
    worst: list[float] = []
    for _ in range(rounds):
        seen = await asyncio.gather(*(_read(lab, replies) for _ in range(readers)))
        cuts = quantiles([latency for one in seen for latency in one], n=100, method="inclusive")
        half.append(cuts[49])
        worst.append(cuts[98])
    wait = [INTERVAL * 1_000] * rounds  # no loop to compare with: the writer's interval is used instead
    name = f"model delta to SSE reader, {readers} at once"
    return [Row(f"{name}, p50", "ms", half, wait), Row(f"{name}, p99", "ms", worst, wait)]


async def _read(lab: Lab, replies: int) -> list[float]:
    """Latencies in ms of the first delta of each reply."""
    task_id = await lab.ours.submit(f"[[script:stamp n={replies} delay={DELAY}]]", replies + 2)
    seen: list[float] = []
    async with lab.api.stream("GET", f"/tasks/{task_id}/events") as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                event = json.loads(line.removeprefix("data:"))
                if event["type"] == "message_delta" and event["text"].startswith("sent "):
                    seen.append((time.time() - float(event["text"].split()[1])) * 1_000)
    if len(seen) != replies:
        raise RuntimeError(f"task {task_id}: {len(seen)} of {replies} stamped deltas arrived")
    return seen
