"""Many waiting sessions together: how many end per second after all were cancelled, or after all were answered."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bench.bare import IDLE, QUEUE
from bench.lab import Lab
from bench.table import Aim, Row
from domain.ids import new_id

ASKED = {"permissions": [{"permission": "list_files", "action": "ask"}]}
TASK = "[[script:count n=1]]"
CLIENTS = 50  # concurrent requests
AIM = Aim(low=50, of_value=True)
T = TypeVar("T")
R = TypeVar("R")


async def measure(lab: Lab, sessions: int) -> list[Row]:
    """From the first request until the last workflow has closed. Bare: an idle workflow and a signal, then one
    activity; for an answer two, because the session runs the tool and asks the model once more before it ends."""
    _, cancelled = await _rates(lab, await _waiting(lab, sessions), lambda task_id: _cancel(lab, task_id))
    accepted, answered = await _rates(lab, await _waiting(lab, sessions), lambda task_id: _answer(lab, task_id))
    bare, bare_step = await _bare(lab, sessions, activities=1), await _bare(lab, sessions, activities=2)
    return [
        Row(f"cancelling {sessions} waiting sessions at once", "1/s", [cancelled], [bare], aim=AIM),
        Row(f"answering {sessions} waiting sessions at once", "1/s", [answered], [bare_step], aim=AIM),
        Row("    of these answers accepted", "1/s", [accepted], aim=AIM),
    ]


async def _waiting(lab: Lab, sessions: int) -> list[str]:
    async def one(_: int) -> str:
        task_id = await lab.ours.submit(TASK, 2, **ASKED)
        await lab.ours.reached(task_id, status="input_required", pause=0.5)
        return task_id

    return await _together(one, list(range(sessions)))


async def _rates(lab: Lab, tasks: list[str], request: Callable[[str], Awaitable[None]]) -> tuple[float, float]:
    """How many requests are accepted per second, and how many sessions end."""
    began = time.perf_counter()
    await _together(request, tasks)
    accepted = time.perf_counter() - began
    await _together(lab.ours.closed, tasks)
    return len(tasks) / accepted, len(tasks) / (time.perf_counter() - began)


async def _cancel(lab: Lab, task_id: str) -> None:
    (await lab.api.post(f"/tasks/{task_id}/cancel", json={})).raise_for_status()


async def _answer(lab: Lab, task_id: str) -> None:
    page = (await lab.api.get(f"/tasks/{task_id}/input-requests")).raise_for_status().json()
    answer = {"response_to": page["items"][0]["id"], "input": {"approved": True}}
    (await lab.api.post(f"/tasks/{task_id}/input", json=answer)).raise_for_status()


async def _bare(lab: Lab, sessions: int, activities: int) -> float:
    async def begin(_: int) -> str:
        name = f"idle/{new_id()}"
        handle = await lab.temporal.start_workflow(IDLE, args=[activities], id=name, task_queue=QUEUE)
        await handle.query("awake")
        return name

    async def end(name: str) -> None:
        await lab.temporal.get_workflow_handle(name).signal("end")

    async def closed(name: str) -> None:
        await lab.temporal.get_workflow_handle(name).result()

    names = await _together(begin, list(range(sessions)))
    began = time.perf_counter()
    await _together(end, names)
    await _together(closed, names)
    return sessions / (time.perf_counter() - began)


async def _together(act: Callable[[T], Awaitable[R]], each: list[T]) -> list[R]:
    gate = asyncio.Semaphore(CLIENTS)

    async def one(item: T) -> R:
        async with gate:
            return await act(item)

    return list(await asyncio.gather(*map(one, each)))
