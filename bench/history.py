"""History bytes per step while the context grows by 1 KB a step: they must not grow with it."""

from collections.abc import Sequence

from temporalio.client import Client

from bench.lab import Lab
from bench.table import Aim, Row
from domain.ids import session_workflow_id

GROW = 1_024
MOST = 3_000


async def measure(lab: Lab, lengths: Sequence[int]) -> list[Row]:
    """The cost of a session without any step is subtracted; otherwise a short session would seem expensive per step."""
    ours = await _ours(lab, 0)
    bare = await size(lab.temporal, await lab.bare(0))
    rows, per_step = [], []
    for steps in lengths:
        per_step.append((await _ours(lab, steps) - ours) / steps)
        limit = (await size(lab.temporal, await lab.bare(steps)) - bare) / steps
        rows.append(
            Row(f"history a step, N={steps}", "bytes", [per_step[-1]], [limit], aim=Aim(high=MOST, of_value=True))
        )
    flat = per_step[-1] / per_step[0]
    name = f"history a step, N={lengths[-1]} to N={lengths[0]}"
    return [*rows, Row(name, "ratio", [flat], aim=Aim(0.95, 1.05, of_value=True))]


async def _ours(lab: Lab, steps: int) -> int:
    task_id = await lab.ours.count(steps, grow=GROW)
    await lab.ours.check(task_id, steps)
    return await size(lab.temporal, session_workflow_id(task_id))


async def size(temporal: Client, workflow_id: str) -> int:
    """The bytes of a workflow in all runs of its chain: a long session continues as new."""
    total, run_id = 0, None
    while run_id is None or run_id:
        handle = temporal.get_workflow_handle(workflow_id, run_id=run_id)
        total += (await handle.describe()).raw_description.workflow_execution_info.history_size_bytes
        first = await anext(handle.fetch_history_events(page_size=1))
        run_id = first.workflow_execution_started_event_attributes.continued_execution_run_id
    return total
