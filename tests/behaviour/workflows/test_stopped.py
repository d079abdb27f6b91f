"""A stopped session ends by one activity, even if the end cannot be stored yet."""

from collections import Counter

import pytest
from temporalio.api.enums.v1 import EventType

from tests.support.stack import Stack, calls, eventually, of_type

ASK = [{"permission": "list_files", "action": "ask"}]
SCHEDULED = "EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"


async def kinds_after_stop(stack: Stack, task_id: str) -> Counter[str]:
    """Return the events of the history since the signal that stopped the session."""
    history = await stack.client.get_workflow_handle(f"session/{task_id}").fetch_history()
    kinds = [EventType.Name(event.event_type) for event in history.events]
    stop = "EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED"
    return Counter(kinds[kinds.index(stop) :] if stop in kinds else [])


@pytest.mark.exactly_once
@pytest.mark.parametrize("held", [False, True], ids=["at_once", "database_busy"])
async def test_stopped_session_ends_once(stack: Stack, held: bool) -> None:
    task_id = await stack.submit(calls(("list_files", {"path": "."})), permissions=ASK)
    await stack.seen(task_id, "input_required")
    async with stack.pool.acquire() as connection, connection.transaction():
        if held:  # storing the end needs this row; a request to stop does not
            await connection.execute("SELECT 1 FROM conversations WHERE id = $1 FOR UPDATE", task_id)
        assert (await stack.cancel(task_id)).status_code == 202

        async def scheduled() -> bool:
            return (await kinds_after_stop(stack, task_id))[SCHEDULED] == 1

        if held:
            await eventually(scheduled, what="the end waits for its row")
    assert (await stack.wait(task_id))["status"] == "cancelled"
    after = await kinds_after_stop(stack, task_id)
    assert after[SCHEDULED] == 1
    assert len(of_type(await stack.events(task_id), "task_cancelled")) == 1
