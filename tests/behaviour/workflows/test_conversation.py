"""The conversation workflow starts its sessions once, and closes when no session is live."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from domain.conversations.requests import Steer
from domain.errors import Unavailable
from domain.ids import new_id
from store import sessions
from tests.support.stack import Stack, calls, eventually
from workflows.client import WorkflowClient


async def status(stack: Stack, task_id: str) -> WorkflowExecutionStatus | None:
    return (await stack.client.get_workflow_handle(f"conversation/{task_id}").describe()).status


async def opened(stack: Stack, task_id: str) -> None:
    await WorkflowClient(stack.client, stack.settings.task_queue).reopen("default", task_id)


async def closes(stack: Stack, task_id: str) -> None:
    async def closed() -> bool:
        return await status(stack, task_id) is WorkflowExecutionStatus.COMPLETED

    await eventually(closed, what="the conversation closed")


async def test_a_task_that_needs_no_decision_has_no_conversation_workflow(stack: Stack) -> None:
    record = await stack.run("[[script:count n=1]]")
    with pytest.raises(RPCError, match="not found"):
        await status(stack, record["conversation_id"])


async def test_conversation_opened_late_adopts_live_sessions_and_closes_with_them(stack: Stack) -> None:
    """A session begins, runs or ends: a conversation that is opened at that time finds it running or ended."""
    tasks = [await stack.submit("[[script:count n=2]]") for _ in range(8)]
    for number, task_id in enumerate(tasks):
        await asyncio.sleep(number / 50)
        await opened(stack, task_id)
    for task_id in tasks:
        assert (await stack.wait(task_id))["status"] == "completed"
        await closes(stack, task_id)


async def test_message_to_the_first_session_opens_its_conversation(stack: Stack, tmp_path: Path) -> None:
    task_id = await stack.submit(calls(("ledger_again", {"path": str(tmp_path / "ledger"), "seconds": 1.5})))
    await stack.seen(task_id, "tool_called")
    answer = await stack.http.post(f"/tasks/{task_id}/steer", json={"message": "Mind the gap."})
    assert answer.status_code == 202, answer.text
    assert (await stack.wait(task_id))["reason"] == "goal_reached"
    texts = [node["body"]["parts"][0]["text"] for node in await stack.nodes(task_id) if node["kind"] == "user"]
    assert texts[1:] == ["Mind the gap."]
    await closes(stack, task_id)


@pytest.mark.proves("D13")
async def test_a_repeated_start_changes_nothing(stack: Stack) -> None:
    """A repeated start, by the same client or another one, finds the conversation started."""
    record = await stack.run("[[script:count n=1]]")
    task_id = record["task_id"]
    row = await sessions.get(stack.pool, "default", task_id)
    assert row is not None
    workflow_client = WorkflowClient(stack.client, stack.settings.task_queue)
    for _ in range(2):
        assert await workflow_client.start(row.workflow_input())
        assert await workflow_client.submit(row.workflow_input(), new_id(), task_id)
    await closes(stack, task_id)
    assert await stack.record(task_id) == record
    assert len(await stack.asked(task_id)) == 2


async def test_conversation_without_time_to_answer_is_unavailable(stack: Stack) -> None:
    """Repeats of an update share one time limit, which may have passed before the next repeat."""
    client = WorkflowClient(stack.client, stack.settings.task_queue)
    nobody = Steer(request_id=new_id(), thread=new_id(), message=new_id())
    with pytest.raises(Unavailable):
        await client.steer("default", nobody.thread, nobody, timedelta(seconds=-1))
