"""A session without hooks ends within its last workflow task: once, whatever arrives or fails meanwhile."""

from collections import Counter

import pytest
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent

from domain.ids import new_id
from store import sessions
from tests.support.launch import TESTER
from tests.support.locks import ending
from tests.support.stack import Stack, eventually, of_type

pytestmark = pytest.mark.exactly_once
SAY = "[[script:say text=first]]"
MARKER, SCHEDULED = EventType.EVENT_TYPE_MARKER_RECORDED, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
TASK_FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
UNHANDLED = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND


async def history(stack: Stack, task_id: str) -> list[HistoryEvent]:
    return list((await stack.session(task_id).fetch_history()).events)


def scheduled(events: list[HistoryEvent]) -> Counter[str]:
    return Counter(
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in events
        if event.event_type == SCHEDULED
    )


async def test_a_session_ends_in_its_last_workflow_task(stack: Stack) -> None:
    record = await stack.run("[[script:count n=2]]")
    assert record["status"] == "completed"
    await stack.session(record["task_id"]).result()
    events = await history(stack, record["task_id"])
    assert "finish_session" not in scheduled(events)
    assert len([event for event in events if event.event_type == MARKER]) == 1


async def test_a_session_with_hooks_ends_by_a_queued_activity(stack: Stack) -> None:
    hooked = {**TESTER, "name": "hooked_end", "hooks": ["notes.on_end"]}
    (await stack.http.put("/agents/hooked_end", json=hooked)).raise_for_status()
    record = await stack.run(SAY, "hooked_end")
    await stack.session(record["task_id"]).result()
    assert scheduled(await history(stack, record["task_id"]))["finish_session"] == 1


async def test_an_ending_that_cannot_be_written_soon_is_queued(stack: Stack) -> None:
    async with ending(stack, SAY) as task_id:

        async def queued() -> bool:
            return scheduled(await history(stack, task_id))["finish_session"] == 1

        await eventually(queued, what="an activity takes over from the one in the workflow task")
    record = await stack.wait(task_id)
    outcome = await stack.session(task_id).result()
    assert (record["status"], outcome["status"]) == ("completed", "completed")
    assert (await stack.result(task_id))["output"] == "first"
    assert len(of_type(await stack.events(task_id), "task_completed")) == 1
    assert len(await stack.asked(task_id)) == 1


async def test_a_message_that_arrives_while_a_session_ends_gets_one_answer(stack: Stack) -> None:
    for _ in range(5):  # the message has to arrive within the two seconds of the local activity
        if await ended_with_a_message(stack):
            return
    pytest.fail("the message never arrived within the last workflow task")


async def ended_with_a_message(stack: Stack) -> bool:
    """Whether the server has repeated the last workflow task."""
    marker = new_id()
    async with ending(stack, SAY) as task_id:
        answer = await stack.http.post(
            f"/tasks/{task_id}/steer", json={"message": f"{marker} [[script:say text=second]]"}
        )
        assert answer.status_code == 202, answer.text
    first = await stack.wait(task_id)
    outcome = await stack.session(task_id).result()
    assert (first["status"], first["reason"], outcome["status"]) == ("completed", "goal_reached", "completed")
    assert len(of_type(await stack.events(task_id), "task_completed", "task_failed", "task_cancelled")) == 1

    async def answered() -> list[str] | None:
        rows = await sessions.find(stack.pool, "default", conversation_id=task_id)
        return [row.id for row in rows] if len(rows) > 1 and all(row.status.terminal for row in rows) else None

    [second] = set(await eventually(answered, what="another session")) - {task_id}
    assert [(await stack.result(one))["output"] for one in (task_id, second)] == ["first", "second"]
    read = [one for one in (task_id, second) for node in await stack.nodes(one) if marker in str(node["body"])]
    assert read == [second]
    assert len(await stack.asked(task_id)) == 2
    assert len(of_type(await stack.events(second), "step_started")) == 1
    failed = [event for event in await history(stack, task_id) if event.event_type == TASK_FAILED]
    return [event.workflow_task_failed_event_attributes.cause for event in failed] == [UNHANDLED]


async def test_a_stop_that_arrives_while_a_session_ends_changes_nothing(stack: Stack) -> None:
    for _ in range(5):
        async with ending(stack, SAY) as task_id:
            await stack.session(task_id).signal("stop", {"reason": "caller_cancel", "by": "somebody"})
        record = await stack.wait(task_id)
        outcome = await stack.session(task_id).result()
        assert (record["status"], outcome["status"]) == ("completed", "completed")
        assert len(of_type(await stack.events(task_id), "task_completed", "task_cancelled")) == 1
        if any(event.event_type == TASK_FAILED for event in await history(stack, task_id)):
            return
    pytest.fail("the stop never arrived within the last workflow task")
