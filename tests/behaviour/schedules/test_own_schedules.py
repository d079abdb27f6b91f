"""Schedules that agents create for themselves, and checks by a tool."""

from typing import Any

import pytest_asyncio

from tests.behaviour.conversations.talk import chain
from tests.behaviour.schedules.clock import create, trigger, until
from tests.support.stack import Stack


@pytest_asyncio.fixture
async def planners(stack: Stack) -> Stack:
    tools = ["manage_schedule", "read_file", "write_file"]
    for name, more in (("planner", {"schedules": 2}), ("no-planner", {})):
        body = {"name": name, "description": "Of the tests.", "prompt": "You are tested.", "tools": tools, **more}
        assert (await stack.http.put(f"/agents/{name}", json=body)).is_success
    return stack


def manage(action: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "manage_schedule", {"action": action, **more}


async def _results(stack: Stack, task_id: str) -> list[str]:
    nodes = await stack.nodes(task_id)
    return [one["text"] for node in nodes if node["kind"] == "tool_results" for one in node["body"]["results"]]


async def test_agent_creates_schedules_up_to_the_number_in_its_definition(planners: Stack) -> None:
    once = {"prompt": "[[script:say text=woken]]", "cron": "0 0 1 1 *"}
    script = chain(
        [manage("create", name="a", **once)],
        [manage("create", name="b", every_s=3_600, prompt="x")],
        [manage("create", name="c", **once)],
        [manage("create", name="a", prompt="[[script:say text=woken]]", cron="0 1 1 1 *")],
        [manage("create", name="b", cron="61 * * * *", prompt="x")],
        [manage("pause", name="b")],
        [manage("pause", name="nothing")],
        [manage("list")],
        last="ok",
    )
    task = await planners.run(script, agent="planner")
    first, _, third, again, wrong, paused, nothing, listed = await _results(planners, task["task_id"])
    assert first.startswith("The schedule a exists. Next times: ") and again.startswith("The schedule a exists.")
    assert third == "You may have 2 schedules, and have 2."
    assert "minute" in wrong and paused == "The schedule b is paused." and nothing == "You have no schedule 'nothing'."
    assert listed.splitlines()[0].startswith("- a: 0 1 1 1 * UTC: ") and "paused" in listed.splitlines()[1]
    items = (await planners.http.get("/schedules?limit=100")).json()["items"]
    own = [one for one in items if one["conversation_id"] == task["conversation_id"]]
    assert len(own) == 2 and all(one["created_by"] == f"agent {task['conversation_id']}" for one in own)
    [a] = [one for one in own if one["name"].endswith(".a")]
    await trigger(planners, a["id"])
    [run] = await until(planners, a["id"], lambda listed: bool(listed))
    woken = await planners.wait(run["session_id"])
    assert (woken["status"], woken["conversation_id"]) == ("completed", task["conversation_id"])
    without = await planners.run(chain([manage("create", name="a", **once)], last="ok"), agent="no-planner")
    assert await _results(planners, without["task_id"]) == ["Your definition allows you no schedules."]
    other = await planners.run(chain([manage("list")], [manage("delete", name="a")], last="ok"), agent="planner")
    assert await _results(planners, other["task_id"]) == ["You have no schedules.", "You have no schedule 'a'."]


async def test_a_tool_is_the_check_of_a_schedule(planners: Stack) -> None:
    read = {"tool": "read_file", "input": {"path": "alarm.txt"}}
    for check, reason in (
        (read, "the check failed"),  # the file does not exist
        (
            {"tool": "write_file", "input": {"path": "x", "content": "y"}},
            "write_file is not a read-only tool of the agent",
        ),
    ):
        made = await create(planners, agent="planner", check=check)
        run = await trigger(planners, made["id"])
        assert run["status"] == "failed" and reason in run["reason"]
    upload = await planners.http.post("/files?name=alarm.txt", content=b"it burns")
    files = {"context": {"files": [upload.json()["file_id"]]}}
    alarmed = await create(planners, agent="planner", check=read, task=files)
    run = await trigger(planners, alarmed["id"])
    assert run["status"] == "fired"
    await planners.wait(run["session_id"])
    assert "it burns" in str(await planners.nodes(run["session_id"]))
