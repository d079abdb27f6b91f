"""Fan-out and fan-in: one session delegates N parts and gathers them; ideally that takes as long as one part."""

import json
import time

from bench.lab import Lab
from bench.table import Row

REPLY_LENGTH, DELAY = 12, 0.5  # a subagent waits some seconds for its model, which costs the machine nothing
PATIENCE = 300  # seconds for one gather


def fan_out(children: int) -> str:
    """A task of two steps: all parts in one reply, then one gather."""
    part = f"[[script:say words={REPLY_LENGTH} delay={DELAY}]]"
    given = {"agent": "researcher", "prompt": part, "description": "one part"}
    launches = [{"name": "async_task", "input": given} for _ in range(children)]
    ids = [f"${number}" for number in range(children)]
    gather = {"name": "gather", "input": {"task_ids": ids, "timeout_s": PATIENCE}}
    return f'[[script:chain json={json.dumps([launches, [gather]])} last="Joined."]]'


async def measure(lab: Lab, rounds: int, children: int) -> list[Row]:
    ours: list[float] = []
    ideal: list[float] = []
    for _ in range(rounds):
        ideal.append(await _seconds(lab, 1))
        ours.append(await _seconds(lab, children))
    return [Row(f"fan-out and gather, {children} subagents (bare: 1)", "s", ours, ideal)]


async def _seconds(lab: Lab, children: int) -> float:
    began = time.perf_counter()
    task_id = await lab.ours.submit(fan_out(children), 5)
    await lab.ours.closed(task_id)
    taken = time.perf_counter() - began
    await lab.ours.check(task_id, 2)
    answer = await lab.api.get(f"/conversations/{task_id}")
    ended = [child["status"] for child in answer.json()["sessions"][0]["children"]]
    if ended != ["completed"] * children:
        raise RuntimeError(f"of {children} subagents of {task_id} ended: {ended}")
    return taken
