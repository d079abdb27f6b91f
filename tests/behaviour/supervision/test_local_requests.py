"""Questions are opened and settled within the workflow tasks that need them; what is too slow for that is queued."""

import pytest

from tests.behaviour.supervision.people import answer, ask, bash, output, waiting
from tests.support.slow_requests import DEFAULT, scheduled, slowly_asked
from tests.support.stack import Stack, calls


async def test_a_question_and_an_approval_take_no_queued_activity(people: Stack) -> None:
    task_id = await people.submit(
        calls(ask("Which?"), bash("echo a")), "asker", permissions=[{"permission": "bash", "action": "ask"}]
    )
    for request in await waiting(people, task_id, 2):
        given = "this one" if request["kind"] == "clarification" else {"approved": True}
        assert (await answer(people, task_id, request["id"], given)).status_code == 202
    assert (await people.wait(task_id))["status"] == "completed"
    await people.session(task_id).result()
    assert await scheduled(people, task_id) == ["call_model", "tool.bash", "call_model"]


@pytest.mark.exactly_once
async def test_a_question_that_is_slow_to_write_is_asked_and_settled_once(people: Stack) -> None:
    task_id = await slowly_asked(people)
    assert (await people.record(task_id))["status"] == "completed"
    seen = [event["type"] for event in await people.events(task_id)]
    assert (seen.count("input_required"), seen.count("input_expired")) == (1, 1)
    [asked] = (await people.http.get(f"/tasks/{task_id}/input-requests")).json()["items"]
    assert asked["status"] == "expired"
    assert f"the default: {DEFAULT}" in await output(people, task_id)
