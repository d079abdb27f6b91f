"""Plan approval: the workflow runs nothing with an effect until a person has approved the plan."""

import asyncio
from typing import Any

import pytest

from tests.behaviour.conversations.talk import Gate, agent, chain
from tests.behaviour.supervision.people import answer, answered, bash, plan, waiting
from tests.support.stack import Stack, eventually, of_type, steps

pytestmark = pytest.mark.together

APPROVAL = {"approval_required": True}


async def exists(stack: Stack, task_id: str, name: str) -> bool:
    return await asyncio.to_thread((stack.workspace(task_id) / name).exists)


@pytest.mark.proves("S1-46")
async def test_effects_wait_until_the_plan_is_approved(people: Stack) -> None:
    hasty = [bash("touch early"), ("write_file", {"path": "early2", "content": "x"}), ("list_files", {"path": "."})]
    hasty.append(("delegate", {"agent": "mute-helper", "prompt": steps([bash("touch early3")])}))
    text = steps([*hasty, plan("look", "touch")], [bash("touch late")])
    task_id = await people.submit(text, "asking-lead", config=APPROVAL)
    [request] = await waiting(people, task_id)
    assert request["kind"] == "plan_approval" and request["details"]["plan"] == ["look", "touch"]
    assert not any([await exists(people, task_id, name) for name in ("early", "early2", "early3", "late")])
    returned = of_type(await people.events(task_id), "tool_returned")
    assert {one["tool"]: one["state"] for one in returned} == {
        **{"bash": "failed", "write_file": "failed", "delegate": "failed"},
        **{"list_files": "ok", "update_plan": "ok"},
    }
    record = await answered(people, task_id, {"approved": True, "notes": "mind the gap"})
    assert record["reason"] == "goal_reached" and await exists(people, task_id, "late")
    first, second = (await people.asked(task_id))[:2]
    assert "approve your plan first" in str(first["body"]["messages"])
    assert "approved" in str(second["body"]["messages"][-1]) and "mind the gap" in str(second["body"]["messages"][-1])


@pytest.mark.proves("S1-46")
async def test_a_rejection_leads_to_another_plan_and_an_edit_changes_it(people: Stack) -> None:
    text = steps([plan("burn it")], [bash("touch burnt"), plan("tidy it")], [bash("touch tidied")])
    # this includes an agent that asks no questions itself
    task_id = await people.submit(text, "tester", config=APPROVAL)
    [first] = await waiting(people, task_id)
    assert (await answer(people, task_id, first["id"], {"approved": False, "notes": "too hot"})).status_code == 202
    for _ in range(100):
        [second] = await waiting(people, task_id)
        if second["id"] != first["id"]:
            break
    assert second["details"]["plan"] == ["tidy it"] and not await exists(people, task_id, "burnt")
    await answered(people, task_id, {"approved": True, "plan": ["sort it", "tidy it"]})
    assert await exists(people, task_id, "tidied")
    record = await people.record(task_id)
    assert [step["title"] for step in record["plan"]["steps"]] == ["sort it", "tidy it"]
    said = [str(one["body"]["messages"][-1]) for one in await people.asked(task_id)]
    assert "too hot" in said[1] and "sort it" in said[2]


@pytest.mark.proves("S1-41")
async def test_record_of_a_task_shows_its_progress_and_times_as_it_works(stack: Stack) -> None:
    """Before it begins, in the middle, and at its end: status, step of its plan, message, and when it last changed."""

    def plan_with(*done: str) -> tuple[str, dict[str, Any]]:
        states = [*done, *["pending"] * (3 - len(done))]
        return "update_plan", {"steps": [{"title": f"step {n}", "status": state} for n, state in enumerate(states)]}

    gate = Gate()
    assert (await stack.http.put("/agents/planner", json=agent("planner"))).is_success
    script = chain(
        [plan_with("in_progress")],
        [plan_with("done", "in_progress"), ("report_progress", {"message": "half way"})],
        [gate.call],
        [plan_with("done", "done", "done")],
        last="Done.",
    )
    task_id = await stack.submit(script, "planner")
    first = await stack.record(task_id)
    assert first["task_id"] == task_id and first["progress"].keys() == {"step", "total_steps", "message"}

    async def half_way() -> dict[str, Any] | None:
        record = await stack.record(task_id)
        return record if record["progress"] == {"step": 2, "total_steps": 3, "message": "half way"} else None

    middle = await eventually(half_way, what="its progress")
    assert middle["status"] == "working"
    gate.open()
    last = await stack.wait(task_id)
    assert last["status"] == "completed" and (last["progress"]["step"], last["progress"]["total_steps"]) == (3, 3)
    times = [first["created_at"], last["started_at"], middle["updated_at"], last["updated_at"]]
    assert times == sorted(times) and middle["started_at"] == last["started_at"] and last["updated_at"] > times[2]
