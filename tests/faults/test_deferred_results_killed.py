"""kill -9 of the worker after a read has ended in Temporal and before its result is written."""

import pytest
from temporalio.api.enums.v1 import EventType

from domain import wire
from tests.support.locks import locked, waiting_for
from tests.support.stack import Stack, calls, eventually, of_type

pytestmark = pytest.mark.asyncio
READ = "tool.list_files"


async def scheduled(stack: Stack, task_id: str) -> list[str]:
    """The activities of the session in their order."""
    events = (await stack.session(task_id).fetch_history()).events
    begun = [event.activity_task_scheduled_event_attributes.activity_type.name for event in events]
    return [name for name in begun if name]


async def test_read_whose_result_was_lost_is_repeated(stack: Stack) -> None:
    async with locked(stack.pool, "tool_calls"):
        task_id = await stack.submit(calls(("list_files", {})))

        async def asked_again() -> bool:
            return (await scheduled(stack, task_id)).count("call_model") == 2

        await eventually(asked_again, what="the read has ended, and the model is asked again")
        await eventually(lambda: waiting_for(stack.pool, "tool_calls"))
        killed = await stack.kill("worker")
        # what the dead worker sent would be written as soon as the lock is gone
        await stack.pool.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = 'tool_calls'::regclass AND NOT granted"
        )
    await stack.back("worker", killed)
    assert (await stack.wait(task_id))["status"] == "completed"
    assert await scheduled(stack, task_id) == ["call_model", READ, "call_model", READ, "call_model"]
    failed = [
        event.activity_task_failed_event_attributes.failure.application_failure_info.type
        for event in (await stack.session(task_id).fetch_history()).events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED
    ]
    assert failed == [wire.RESULT_LOST]
    events = await stack.events(task_id)
    [returned] = of_type(events, "tool_returned")
    assert returned["state"] == "ok"
    assert [event["step"] for event in of_type(events, "step_started")] == [1, 2]
    sent_back = str((await stack.asked(task_id))[-1]["body"]["messages"][-1])
    assert "nterrupted" not in sent_back and "empty" in sent_back
