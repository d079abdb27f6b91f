"""The levels of autonomy, each shown by one task as its caller sees it."""

import asyncio
import json
from typing import Any

import pytest

from tests.behaviour.supervision.people import agent, answer, ask, plan, waiting
from tests.support.launch import TESTER
from tests.support.stack import Stack, eventually, of_type, steps

WRITE: tuple[str, dict[str, Any]] = ("write_file", {"path": "note.md", "content": "noted"})
LOOK: tuple[str, dict[str, Any]] = ("list_files", {})


@pytest.mark.proves("S1-30")
async def test_unattended_task_asks_nobody_has_limits_and_is_fetched_by_polling(people: Stack) -> None:
    held = ("bash", {"command": "until [ -e go ]; do sleep 0.1; done"})
    task_id = await people.submit(steps([held], [LOOK]), "tester", config={"ttl": 60_000})
    await people.seen(task_id, "tool_called")
    early = await people.http.get(f"/tasks/{task_id}/result")  # the request does not wait for the result
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
    before = of_type(await people.events(task_id), "tool_called", "artifact_saved")
    assert [event["tool"] for event in before] == ["update_plan"]  # the call that made the plan, and nothing else
    edited = {"approved": True, "plan": ["look twice", "write"]}
    assert (await answer(people, task_id, wanted["id"], edited)).status_code == 202
    [question] = await waiting(people, task_id)
    assert question["question"] == "Which name?"
    working = await people.record(task_id)
    assert working["progress"]["total_steps"] == 2 and working["plan"]["steps"][0]["title"] == "look twice"
    intervention = await people.http.post(f"/tasks/{task_id}/steer", json={"message": "Mind the margins."})
    assert intervention.status_code == 202, intervention.text
    assert (await answer(people, task_id, question["id"], "note.md")).status_code == 202
    record = await people.wait(task_id)
    assert record["status"] == "completed"
    requests = [json.dumps(one["body"]["messages"]) for one in await people.asked(task_id)]
    steered = ["Mind the margins." in one for one in requests]
    assert steered == [False, False, False, True, True]  # the message is read at the next step
    seen = await people.events(task_id)
    assert len(of_type(seen, "step_started")) >= 4
    # nobody intervenes, and nobody has to
    thought = await people.run('[[script:say thought="I weigh it."]]', "supervised")
    assert thought["status"] == "completed"
    [thinking] = of_type(await people.events(thought["task_id"]), "thinking")
    assert thinking["text"] == "I weigh it."


async def by_person(stack: Stack, agent: str, goal: str) -> str:
    return await stack.submit(goal, agent)  # accepted immediately: the response is a handle, not an answer


async def by_clock(stack: Stack, agent: str, goal: str) -> str:
    every = {"name": f"goal-{agent}", "every": 3_600_000, "task": {"agent": agent, "input": goal}}
    made = await stack.http.post("/schedules", json=every)
    assert made.status_code == 201, made.text
    schedule = f"/schedules/{made.json()['id']}"
    ticked = await stack.http.post(f"{schedule}/trigger")
    assert ticked.status_code == 202, ticked.text

    async def begun() -> str | None:
        runs = (await stack.http.get(f"{schedule}/runs")).json()["items"]
        return runs[0].get("session_id") if runs else None

    task_id = await eventually(begun, what="the tick's session")
    await stack.http.delete(schedule)
    return task_id


@pytest.mark.proves("S1-04", "S1-85")
async def test_same_goal_takes_another_course_where_python_is_denied_by_person_and_by_schedule(people: Stack) -> None:
    """The same goal in two environments: one can run Python, the other denies it. Nobody sends a further message. The
    first attempt fails in both, and the plan changes."""
    denied = {"permission": "bash", "pattern": "python3*", "action": "deny"}
    worlds = {"s1-85-free": [], "s1-85-hindered": [denied]}
    for name, rules in worlds.items():
        put = await people.http.put(f"/agents/{name}", json=TESTER | {"name": name, "permissions": rules})
        assert put.is_success, put.text
    goal = "Compute the first 6 primes [[script:assistant]]"
    tasks = [begin(people, name, goal) for name in worlds for begin in (by_person, by_clock)]
    courses, plans, said = [], [], []
    for task_id in await asyncio.gather(*tasks):
        record = await people.wait(task_id)
        assert record["status"] == "completed"
        prompts = [node for node in await people.nodes(task_id) if node["kind"] == "user"]
        assert len(prompts) == 1
        said.append((await people.result(task_id))["output"])
        events = await people.events(task_id)
        courses.append([(event["tool"], event["state"]) for event in of_type(events, "tool_returned")])
        plans.append([[step["title"] for step in event["steps"]] for event in of_type(events, "plan_updated")])
    free, free_by_clock, hindered, hindered_by_clock = map(sorted, courses)  # calls of one step return in any order
    assert free == free_by_clock and hindered == hindered_by_clock and free != hindered
    assert [course.count(("bash", "failed")) for course in (free, hindered)] == [1, 2]
    assert ["2, 3, 5, 7, 11, 13" in one for one in said] == [True, True, False, False]
    assert all("there is no result" in one for one in said[2:])
    # the failure changed the plan, and a later step ran what an earlier one had written
    other = "Run it with the interpreter"
    assert all(other not in plan[0] and any(other in one for one in plan[1:]) for plan in plans)
    assert all(course.index(("write_file", "ok")) < course.index(("bash", "ok")) for course in courses[:2])
