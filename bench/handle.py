"""Time to the handle: a submission answered, against starting a bare workflow and one commit in PostgreSQL."""

import os
import time
from statistics import median

from bench.bare import MODEL, QUEUE
from bench.lab import Lab
from bench.ours import counting
from bench.table import Aim, Row
from domain.ids import new_id
from store import files


async def measure(lab: Lab, rounds: int, submissions: int) -> list[Row]:
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(rounds):
        ours.append(median([await _ours(lab) for _ in range(submissions)]))
        bare.append(median([await _bare(lab) for _ in range(submissions)]))
    return [Row("time to the handle", "ms", ours, bare, aim=Aim(high=1.5))]


async def _ours(lab: Lab) -> float:
    began = time.perf_counter()
    task_id = await lab.ours.submit(counting(0), 2)
    taken = time.perf_counter() - began
    await lab.ours.await_closing(task_id)  # so that the next one is measured alone
    return taken * 1_000


async def _bare(lab: Lab) -> float:
    name = f"bare/{new_id()}"
    began = time.perf_counter()
    await files.put_blobs(lab.pool, "bench", [os.urandom(64)])
    handle = await lab.temporal.start_workflow("BareLoop", args=[0, MODEL], id=name, task_queue=QUEUE)
    taken = time.perf_counter() - began
    await handle.result()
    return taken * 1_000
