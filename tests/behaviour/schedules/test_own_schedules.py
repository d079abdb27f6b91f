"""Schedules that agents create for themselves, checks by a tool, and variables that their runs share."""

from typing import Any

import pytest_asyncio

from tests.behaviour.conversations.talk import asked, chain, say
from tests.behaviour.schedules.clock import create, show, trigger, until
from tests.behaviour.triggers.sender import Sender
from tests.support.stack import Stack, calls


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
    other = await planners.run(chain([manage("list")], [manage("delete", name="a")], last="ok"), agent="planner")
    assert await _results(planners, other["task_id"]) == ["You have no schedules.", "You have no schedule 'a'."]


async def test_agent_without_the_right_creates_no_schedule(planners: Stack) -> None:
    task = await planners.run(
        chain([manage("create", name="a", every_s=60, prompt="x")], last="ok"), agent="no-planner"
    )
    assert await _results(planners, task["task_id"]) == ["Your definition allows you no schedules."]


async def test_a_tool_is_the_check_of_a_schedule(planners: Stack) -> None:
    made = await create(planners, agent="planner", check={"tool": "read_file", "input": {"path": "alarm.txt"}})
    await trigger(planners, made["id"])
    [run] = await until(planners, made["id"], lambda listed: len(listed) == 1)
    assert run["status"] == "failed" and "the check failed" in run["reason"]  # the file does not exist
    writing = await create(
        planners, agent="planner", check={"tool": "write_file", "input": {"path": "x", "content": "y"}}
    )
    await trigger(planners, writing["id"])
    [run] = await until(planners, writing["id"], lambda listed: len(listed) == 1)
    assert "write_file is not a read-only tool of the agent" in run["reason"]
    foreign = await create(planners, agent="planner", check={"tool": "search_files", "input": {"pattern": "x"}})
    await trigger(planners, foreign["id"])
    [run] = await until(planners, foreign["id"], lambda listed: len(listed) == 1)
    assert run["status"] == "failed" and (await show(planners, foreign["id"]))["failures"] == 1
    upload = await planners.http.post("/files?name=alarm.txt", content=b"it burns")
    files = {"context": {"files": [upload.json()["file_id"]]}}
    check = {"tool": "read_file", "input": {"path": "alarm.txt"}}
    alarmed = await create(planners, agent="planner", check=check, task=files)
    await trigger(planners, alarmed["id"])
    [run] = await until(planners, alarmed["id"], lambda listed: len(listed) == 1)
    assert run["status"] == "fired"
    await planners.wait(run["session_id"])
    assert "it burns" in str(await planners.nodes(run["session_id"]))
    both = {
        "name": "x",
        "cron": "0 0 1 1 *",
        "task": {"agent": "planner", "input": "x"},
        "check": {"run": "x", "tool": "y"},
    }
    assert (await planners.http.post("/schedules", json=both)).status_code == 422


PROBLEM = "urn:errand:problem:"


@pytest_asyncio.fixture
async def painter(stack: Stack) -> Stack:
    variables = {"HUE": {"description": "the colour of the day"}}
    tools = ["send_agent_message", "ask_agent"]
    body = {"name": "painter", "description": "x", "prompt": "x", "tools": tools, "variables": variables}
    assert (await stack.http.put("/agents/painter", json=body)).is_success
    body = {"name": "caller", "description": "x", "prompt": "x", "tools": tools}
    assert (await stack.http.put("/agents/caller", json=body)).is_success
    return stack


async def hue(stack: Stack, value: str) -> None:
    assert (await stack.http.put("/variables", json={"variables": {"HUE": value}, "kind": "text"})).is_success


async def test_shared_values_are_those_of_when_a_run_begins(painter: Stack) -> None:
    await hue(painter, "red")
    scheduled = await create(painter, say("tick"), agent="painter")
    sender = await Sender.new(painter, task={"agent": "painter", "input": say("event")})
    woken = await painter.run(say("first"), agent="painter")
    await hue(painter, "blue")
    run: dict[str, Any] = await trigger(painter, scheduled["id"])
    event = await sender.accepted({"n": 1})
    ask = calls(("ask_agent", {"agent_id": woken["conversation_id"], "prompt": say("second")}))
    await painter.run(ask, agent="caller")
    rows = await painter.pool.fetch(
        "SELECT id FROM sessions WHERE conversation_id = $1 ORDER BY created_at", woken["conversation_id"]
    )
    for session_id in (run["session_id"], event["session_id"], rows[-1]["id"]):
        await painter.wait(session_id)
        shown = (await painter.http.get(f"/threads/{await thread(painter, session_id)}/variables")).json()["variables"]
        assert [(one["name"], one["value"], one["source"]) for one in shown] == [("HUE", "blue", "tenant")]
    assert len(await asked(painter, "HUE: blue")) == 3 and len(await asked(painter, "HUE: red")) == 1
    assert (await painter.http.delete("/variables/HUE")).status_code == 204
    run = await trigger(painter, scheduled["id"])
    assert (run["status"], run["reason"]) == ("failed", "The agent lacks values for HUE.")
    refused = await sender.send({"n": 2})
    assert (refused.status_code, refused.json()["type"]) == (422, f"{PROBLEM}missing-variables")
    await painter.run(ask, agent="caller")  # a message to an existing thread is still delivered


async def thread(stack: Stack, session_id: str) -> str:
    return str(await stack.pool.fetchval("SELECT thread_id FROM sessions WHERE id = $1", session_id))
