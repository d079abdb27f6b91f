"""The levels of autonomy, each shown by one task as a caller meets it."""

from typing import Any

import pytest

from tests.behaviour.supervision.people import agent, answer, ask, plan, waiting
from tests.support.stack import Stack, eventually, of_type, steps

WRITE: tuple[str, dict[str, Any]] = ("write_file", {"path": "note.md", "content": "noted"})
LOOK: tuple[str, dict[str, Any]] = ("list_files", {})


@pytest.mark.proves("S1-30")
async def test_a_task_on_its_own_asks_nobody_is_bounded_and_is_collected_by_polling(people: Stack) -> None:
    held = ("bash", {"command": "until [ -e go ]; do sleep 0.1; done"})
    task_id = await people.submit(steps([held], [LOOK]), "tester", config={"ttl": 60_000})
    await people.seen(task_id, "tool_called")
    early = await people.http.get(f"/tasks/{task_id}/result")  # the caller is never kept waiting
    assert (early.status_code, early.json()["task_status"]) == (409, "working")
    (people.workspace(task_id) / "go").touch()
    record = await people.wait(task_id)
    assert record["status"] == "completed" and record["limits"]["ttl_ms"] == 60_000
    assert "list_files returned" in (await people.result(task_id))["output"]
    asking = await people.run(steps([ask("May I?")], [LOOK]), "tester")
    assert (asking["status"], asking["reason"]) == ("failed", "needs_input")
    assert not of_type(await people.events(asking["task_id"]), "input_required")  # nobody was asked
    late = await people.submit("[[script:say words=5]] [[fault:hang]]", "tester", config={"ttl": 1_500})
    ended = await people.wait(late)
    assert (ended["status"], ended["reason"]) == ("failed", "ttl")


@pytest.mark.proves("S1-31")
async def test_a_supervised_task_has_its_plan_edited_asks_and_shows_its_progress(people: Stack) -> None:
    thinker = agent("supervised", may_ask=True, thinking_tokens=1_024)
    said = await people.http.put("/agents/supervised", json=thinker)
    assert said.is_success, said.text
    script = steps([plan("look", "write")], [LOOK], [ask("Which name?")], [WRITE])
    task_id = await people.submit(script, "supervised", config={"approval_required": True})
    [wanted] = await waiting(people, task_id)
    assert wanted["kind"] == "plan_approval" and (await people.record(task_id))["status"] == "input_required"
    assert not of_type(await people.events(task_id), "tool_called", "artifact_saved")[1:]  # nothing before the approval
    edited = {"approved": True, "plan": ["look twice", "write"]}
    assert (await answer(people, task_id, wanted["id"], edited)).status_code == 202
    [question] = await waiting(people, task_id)
    assert question["question"] == "Which name?"
    working = await people.record(task_id)
    assert working["progress"]["total_steps"] == 2 and working["plan"]["steps"][0]["title"] == "look twice"
    assert (await answer(people, task_id, question["id"], "note.md")).status_code == 202
    record = await people.wait(task_id)
    assert record["status"] == "completed"
    seen = await people.events(task_id)
    assert len(of_type(seen, "step_started")) >= 4
    thought = await people.run('[[script:think thought="I weigh it."]]', "supervised")  # nobody intervenes, nobody must
    assert thought["status"] == "completed"
    [thinking] = of_type(await people.events(thought["task_id"]), "thinking")
    assert thinking["text"] == "I weigh it."


@pytest.mark.proves("S1-85")
async def test_a_run_chooses_tools_changes_its_plan_keeps_state_and_blocks_nobody(people: Stack) -> None:
    replanned = steps([plan("look", "report")], [LOOK], [plan("look", "write", "report")], [WRITE], [LOOK])
    task_id = await people.submit(replanned, "tester")  # accepted at once: a handle, no answer
    record = await people.wait(task_id)
    assert record["status"] == "completed"
    happened = await people.events(task_id)
    assert [len(one["steps"]) for one in of_type(happened, "plan_updated")] == [2, 3]
    assert len(of_type(happened, "step_started")) >= 5  # one message of a person, many steps
    assert "note.md" in (await people.result(task_id))["output"]  # what an earlier step left is there in a later one
    every = {"name": "s1-85", "every": 3_600_000, "task": {"agent": "tester", "input": replanned}}
    made = await people.http.post("/schedules", json=every)
    assert made.status_code == 201, made.text
    ticked = await people.http.post(f"/schedules/{made.json()['id']}/trigger")
    assert ticked.status_code == 202, ticked.text

    async def goal() -> str | None:
        runs = (await people.http.get(f"/schedules/{made.json()['id']}/runs")).json()["items"]
        return runs[0].get("session_id") if runs else None

    # the clock began it, the goal led
    by_clock = await people.wait(await eventually(goal, what="the tick's session"))
    assert by_clock["status"] == "completed"
    assert len(of_type(await people.events(by_clock["task_id"]), "plan_updated")) == 2
    await people.http.delete(f"/schedules/{made.json()['id']}")
