"""The six states of a task, and the caller's actions in each."""

import pytest

from tests.behaviour.supervision.people import answer, ask, bash, waiting
from tests.support.stack import Stack, calls, eventually, steps


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


async def status_of(people: Stack, task_id: str) -> str:
    described = await people.session(task_id).describe()
    [status] = described.search_attributes["SessionStatus"]
    return str(status)


async def details_of(people: Stack, task_id: str) -> str:
    metadata = await people.session(task_id).query("__temporal_workflow_metadata")
    return str(metadata.get("currentDetails", "") if isinstance(metadata, dict) else metadata.current_details)


async def test_waiting_session_names_its_question_rule_and_deadline(people: Stack) -> None:
    task_id = await people.submit(steps([ask("Which port?")], [bash("touch a")]), "careful")
    [first] = await waiting(people, task_id)
    await eventually(lambda: _is(people, task_id, "input_required"), what="the status of the first step")
    details = await details_of(people, task_id)
    assert "input_required" in details and "Which port?" in details and " UTC" in details
    await answer(people, task_id, first["id"], "80")

    async def asked_again() -> dict[str, object] | None:
        [request] = await waiting(people, task_id)
        return request if request["id"] != first["id"] else None

    second = await eventually(asked_again, what="the second request")
    await eventually(lambda: _is(people, task_id, "input_required"), what="the status of the second step")
    details = await details_of(people, task_id)
    assert 'ask bash "touch *"' in details and "Which port?" not in details
    await answer(people, task_id, str(second["id"]), {"approved": True})
    await people.wait(task_id)
    await eventually(lambda: _is(people, task_id, "completed"), what="the last status")


async def _is(people: Stack, task_id: str, wanted: str) -> bool:
    return await status_of(people, task_id) == wanted
