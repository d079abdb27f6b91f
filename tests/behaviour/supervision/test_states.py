"""The six states of a task, and the caller's actions in each."""

import pytest

from tests.behaviour.supervision.people import answer, ask, waiting
from tests.support.stack import Stack, calls


@pytest.mark.proves("S1-10", "S1-11", "S1-16")
async def test_each_state_has_its_actions(people: Stack) -> None:
    http = people.http

    async def holds(task_id: str, status: str) -> None:
        assert (await people.record(task_id))["status"] == status
        early = await http.get(f"/tasks/{task_id}/result")
        assert (early.status_code, early.json()["task_status"]) == (409, status)

    with people.frozen("worker"):
        submitted = await people.submit(calls(ask("Go on?")), "asker")
        await holds(submitted, "submitted")  # polling and subscribing work before a worker has started it
        assert (await people.events(submitted))[0]["type"] == "task_submitted"
    [request] = await waiting(people, submitted)
    await holds(submitted, "input_required")
    assert (await answer(people, submitted, request["id"], "yes")).status_code == 202  # the caller answers …
    assert (await people.wait(submitted))["status"] == "completed"
    assert "yes" in (await people.result(submitted))["output"]  # … and gets the result

    working = await people.submit("[[script:say words=30]] [[fault:hang after=6]]")
    await people.seen(working, "message_delta")  # the caller follows the stream
    await holds(working, "working")

    unanswered = await people.submit(calls(ask("Go on?")), "asker")
    await waiting(people, unanswered)
    for task_id in (working, unanswered):  # the caller cancels instead of answering
        assert (await people.cancel(task_id)).status_code == 202
        assert (await people.wait(task_id))["status"] == "cancelled"
        assert (await people.result(task_id))["reason"] == "caller_cancel"  # the cancel is confirmed

    failed = await people.run(calls(ask("Go on?")))  # this agent may not ask
    assert (failed["status"], failed["reason"]) == ("failed", "needs_input")
    assert (await people.result(failed["task_id"]))["error"]  # the caller inspects the error; a retry is a new task
