"""Recovery: a task whose worker is killed with -9 in the middle, against the same task left alone."""

import os
import signal
import time

from bench import cpu
from bench.lab import Lab
from bench.table import Aim, Row

TASK = "[[script:count n=6]]"


async def measure(lab: Lab, rounds: int) -> list[Row]:
    """This is the last measurement, because afterwards the worker is another process."""
    ours: list[float] = []
    alone: list[float] = []
    for _ in range(rounds):
        alone.append(await _seconds(lab, kill=False))
        ours.append(await _seconds(lab, kill=True))
    return [
        Row(
            "a task through kill -9 of its worker (bare: undisturbed)", "s", ours, alone, aim=Aim(high=6, of_value=True)
        )
    ]


async def _seconds(lab: Lab, *, kill: bool) -> float:
    began = time.perf_counter()
    task_id = await lab.ours.submit(TASK, 8)
    if kill:
        await lab.ours.await_state(task_id, step=3)
        os.kill(await _worker(lab), signal.SIGKILL)
    await lab.ours.await_closing(task_id)
    return time.perf_counter() - began


async def _worker(lab: Lab) -> int:
    """The pid of the newest worker; one that was just killed is still listed."""
    listed = (await lab.api.get("/readyz")).json()["workers"]
    pids = [int(name.rpartition("/")[2]) for name in listed]
    return max(pid for pid in pids if cpu.lives(pid))
