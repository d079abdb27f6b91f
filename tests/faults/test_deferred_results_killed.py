"""kill -9 of the worker after a read has ended in Temporal and before its result is written."""

import pytest
from temporalio.api.enums.v1 import EventType

from domain import wire
from tests.support.lost_result import scheduled, with_lost_result
from tests.support.stack import Stack, of_type

pytestmark = pytest.mark.asyncio
READ = "tool.list_files"


async def test_read_whose_result_was_lost_is_repeated(stack: Stack) -> None:
    task_id = await with_lost_result(stack)
    assert (await stack.wait(task_id))["status"] == "completed"
    await stack.session(task_id).result()
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


async def test_summary_does_without_a_result_that_was_lost(stack: Stack) -> None:
    task_id = await with_lost_result(stack, max_steps=1)
    record = await stack.wait(task_id)
    assert record["reason"] == "step_limit" and (await stack.http.get(f"/tasks/{task_id}/result")).json()["output"]
    await stack.session(task_id).result()
    assert await scheduled(stack, task_id) == ["call_model", READ, "call_model", "call_model"]
    assert "nterrupted" in str((await stack.asked(task_id))[-1]["body"]["messages"])
