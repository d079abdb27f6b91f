"""Ownership of tasks: other keys need the right to supervise, and their actions are recorded under their name."""

import pytest

from store.keys import Right
from tests.behaviour.supervision.people import answer, ask, bearer, waiting
from tests.support.stack import Stack, calls, of_type


async def asking(stack: Stack, headers: dict[str, str]) -> str:
    body = {"agent": "curious", "input": calls(ask("Which?"))}
    said = await stack.http.post("/tasks", json=body, headers=headers)
    assert said.status_code == 202, said.text
    task_id: str = said.json()["task_id"]
    await waiting(stack, task_id)
    return task_id


async def test_a_supervisor_acts_on_others_tasks_and_nobody_else_does(bounded: Stack) -> None:
    owner = await bearer(bounded, Right.SUBMIT, Right.ANSWER)
    other = await bearer(bounded, Right.SUBMIT, Right.READ, Right.ANSWER, Right.APPROVE)
    supervisor = await bearer(bounded, Right.SUPERVISE)
    task_id = await asking(bounded, owner)
    [request] = await waiting(bounded, task_id)
    requests = {
        f"/tasks/{task_id}/cancel": {},
        f"/tasks/{task_id}/interrupt": {},
        f"/tasks/{task_id}/steer": {"message": "Hurry."},
        f"/tasks/{task_id}/budget": {"max_steps": 60},
        f"/tasks/{task_id}/input": {"response_to": request["id"], "input": "this one"},
        f"/tasks/{task_id}/promote": None,
        f"/conversations/{task_id}/interrupt": None,
        f"/conversations/{task_id}/terminate": None,
        f"/conversations/{task_id}/messages": {"input": "Hurry.", "if_busy": "steer"},
    }
    for path, body in requests.items():
        refused = await bounded.http.post(path, json=body, headers=other)
        assert refused.status_code == 403, path
        assert refused.json()["needed"] == ["supervise"] and "supervise" in refused.json()["detail"]
    assert (await bounded.record(task_id))["status"] == "input_required"
    assert (await bounded.http.get(f"/tasks/{task_id}", headers=other)).status_code == 200  # every key may read
    assert (await answer(bounded, task_id, request["id"], "this one", **supervisor)).status_code == 202
    assert (await bounded.wait(task_id))["reason"] == "goal_reached"
    assert of_type(await bounded.events(task_id), "input_received")[0]["by"] == "supervise"


@pytest.mark.proves("S1-18")
async def test_canceller_is_recorded(bounded: Stack) -> None:
    owner = await bearer(bounded, Right.SUBMIT)
    task_id = await asking(bounded, owner)
    supervisor = await bearer(bounded, Right.SUPERVISE)
    stopped = await bounded.http.post(f"/tasks/{task_id}/cancel", json={"reason": "wrong"}, headers=supervisor)
    assert stopped.status_code == 202
    record = await bounded.wait(task_id)
    assert (record["status"], record["cancel_requested"]["by"]) == ("cancelled", "supervise")
    own = await asking(bounded, owner)
    assert (await bounded.http.post(f"/tasks/{own}/cancel", headers=owner)).status_code == 202
