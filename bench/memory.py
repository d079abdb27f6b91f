"""Memory of the worker per session: of those that wait for a person, and of those in a call of the model."""

import asyncio
from collections.abc import Awaitable, Callable

from bench import cpu
from bench.bare import IDLE, QUEUE
from bench.lab import Lab
from bench.table import Aim, Row
from domain.ids import new_id

ASKED = {"permissions": [{"permission": "list_files", "action": "ask"}]}
HANGS = "[[script:say words=9]] [[fault:hang after=3 times=always]]"


async def measure(lab: Lab, sessions: int) -> list[Row]:
    """Each figure but the first is of sessions that are added to as many others: the first ones on a worker also pay
    for what it needs once."""
    if not cpu.measurable():
        return []
    _, bare = await _growth(lab, "bare", sessions, lambda: _bare(lab, sessions))
    first, waiting = await _growth(
        lab, "worker", sessions, lambda: _ours(lab, sessions, "[[script:count n=1]]", "input_required", **ASKED)
    )
    half = max(1, sessions // 2)  # a worker makes 150 calls at once
    _, live = await _growth(lab, "worker", half, lambda: _ours(lab, half, HANGS, "working"))
    return [
        Row("worker memory per waiting session", "kB", [waiting], [bare], aim=Aim(high=130, of_value=True)),
        Row(f"worker memory per waiting session, of the first {sessions}", "kB", [first], [bare]),
        Row("worker memory per session in a model call", "kB", [live], [bare]),
    ]


async def _growth(
    lab: Lab, worker: str, sessions: int, begin: Callable[[], Awaitable[Callable[[], Awaitable[None]]]]
) -> tuple[float, float]:
    """The kilobytes of each session of a first group, and of each of a second group beside it."""
    grown: list[float] = []
    ends: list[Callable[[], Awaitable[None]]] = []
    for _ in range(2):
        before = cpu.resident(lab.pids[worker])
        ends.append(await begin())
        await asyncio.sleep(1)
        grown.append(max(1, cpu.resident(lab.pids[worker]) - before) / sessions / 1024)
    for end in ends:
        await end()
    return grown[0], grown[1]


async def _bare(lab: Lab, sessions: int) -> Callable[[], Awaitable[None]]:
    handles = [
        await lab.temporal.start_workflow(IDLE, id=f"idle/{new_id()}", task_queue=QUEUE) for _ in range(sessions)
    ]
    for handle in handles:
        await handle.query("awake")  # now the worker has it in memory

    async def end() -> None:
        await asyncio.gather(*(handle.terminate() for handle in handles))

    return end


async def _ours(lab: Lab, sessions: int, text: str, status: str, **more: object) -> Callable[[], Awaitable[None]]:
    tasks = [await lab.ours.submit(text, 2, **more) for _ in range(sessions)]
    for task_id in tasks:
        await lab.ours.await_state(task_id, status=status)

    async def end() -> None:
        for task_id in tasks:
            (await lab.api.post(f"/tasks/{task_id}/cancel", json={})).raise_for_status()
        for task_id in tasks:
            await lab.ours.await_closing(task_id)

    return end
