"""The conversation: starts its sessions once, closes when nothing lives, and cannot be wedged from outside."""

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowUpdateFailedError

from domain.session import Reason
from domain.step import StopRequest
from store import sessions
from tests.stack import Stack, eventually
from workflows.client import Door


async def status(stack: Stack, task_id: str) -> WorkflowExecutionStatus | None:
    return (await stack.client.get_workflow_handle(f"conversation/{task_id}").describe()).status


async def test_it_closes_when_its_session_has_ended(stack: Stack) -> None:
    record = await stack.run("[[script:say text=bye]]")

    async def closed() -> bool:
        return await status(stack, record["conversation_id"]) is WorkflowExecutionStatus.COMPLETED

    await eventually(closed, what="the conversation closed")


@pytest.mark.proves("D13", "S1-21")
async def test_a_repeated_start_changes_nothing(stack: Stack) -> None:
    record = await stack.run("[[script:count n=1]]")
    task_id = record["task_id"]
    row = await sessions.get(stack.pool, "default", task_id)
    assert row is not None
    door = Door(stack.client, stack.settings.task_queue)
    for _ in range(3):
        assert await door.start(row.workflow_input())

    async def closed() -> bool:
        return await status(stack, task_id) is WorkflowExecutionStatus.COMPLETED

    await eventually(closed, what="the conversation closed again")
    assert await stack.record(task_id) == record
    assert len(await stack.asked(task_id)) == 2


async def test_malformed_messages_wedge_nothing(stack: Stack) -> None:
    task_id = await stack.submit("[[script:say words=30]] [[fault:hang after=6]]")
    await stack.seen(task_id, "message_delta")
    conversation = stack.client.get_workflow_handle(f"conversation/{task_id}")
    for name, args in (("session_done", []), ("session_done", ["x"]), ("session_done", [1, 2, 3]), ("nonsense", [{}])):
        await conversation.signal(name, args=args)
        await stack.session(task_id).signal(name, args=args)
    with pytest.raises(WorkflowUpdateFailedError):
        await stack.session(task_id).execute_update("stop", "nonsense")
    assert await status(stack, task_id) is WorkflowExecutionStatus.RUNNING
    await stack.session(task_id).execute_update("stop", StopRequest(reason=Reason.CALLER_CANCEL, by="test"))
    assert (await stack.wait(task_id))["status"] == "cancelled"

    async def closed() -> bool:
        return await status(stack, task_id) is WorkflowExecutionStatus.COMPLETED

    await eventually(closed, what="the conversation closed")
