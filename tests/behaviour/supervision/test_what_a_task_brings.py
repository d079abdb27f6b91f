"""What a task can bring with it, and the session for which its tools act."""

import asyncio
import json

import pytest

from tests.behaviour.supervision.people import agent, answer, waiting
from tests.support.launch import TESTER
from tests.support.stack import Stack, calls, of_type, steps

MODEL = "claude-haiku-4-5"


@pytest.mark.proves("S3-19")
async def test_task_sets_files_notes_model_tools_and_rules_and_its_tools_act_for_it(people: Stack) -> None:
    stack = people
    traveller = agent("traveller", tools=[*TESTER["tools"], "whoami"])
    assert (await stack.http.put("/agents/traveller", json=traveller)).is_success
    sent = await stack.http.post("/files", params={"name": "notes.md"}, content=b"the port is 8080\n")
    bash = [("bash", {"command": f"echo x > {name}"}) for name in ("kept", "secret", "secret-but-allowed", "asked")]
    wanted = calls(("read_file", {"path": "notes.md"}), *bash, ("save_artifact", {"path": "kept"}), ("whoami", {}))
    task_id = await stack.submit(
        wanted,
        "traveller",
        context={"files": [sent.json()["file_id"]], "notes": ["Mind the gap."]},
        config={"model": MODEL},
        boundary={"tools": ["read_file", "bash", "whoami"]},
        permissions=[  # in order: the last rule that matches decides
            {"permission": "bash", "pattern": "*allowed*", "action": "deny"},
            {"permission": "bash", "pattern": "*secret*", "action": "deny"},
            {"permission": "bash", "pattern": "*secret-but-allowed*", "action": "allow"},
            {"permission": "bash", "pattern": "*asked*", "action": "allow"},
            {"permission": "bash", "pattern": "*ask*", "action": "ask"},
        ],
    )
    [request] = await waiting(stack, task_id)
    assert (request["kind"], request["details"]["arguments"]) == ("tool_approval", bash[-1][1])
    assert (await answer(stack, task_id, request["id"], {"approved": True})).status_code == 202
    assert (await stack.wait(task_id))["status"] == "completed"
    first, second = (one["body"] for one in (await stack.asked(task_id))[:2])
    assert first["model"] == MODEL and "Mind the gap." in json.dumps(first["messages"])
    offered = {tool["name"] for tool in first["tools"]}
    # tools for plans and progress are always offered
    assert offered == {"read_file", "bash", "whoami", "update_plan", "report_progress"}
    results = [block for block in second["messages"][-1]["content"] if block["type"] == "tool_result"]
    assert [block.get("is_error", False) for block in results] == [False, False, True, False, False, True, False]
    assert "the port is 8080" in json.dumps(results[0])
    assert f"I act for traveller in {task_id} of {task_id}." in json.dumps(results[-1])
    folder = stack.workspace(task_id)  # its own directory only
    files = await asyncio.to_thread(lambda: {path.name for path in folder.iterdir() if path.is_file()})
    assert files == {"notes.md", "kept", "secret-but-allowed", "asked", "whoami"}
    stopped = await stack.submit(steps([("bash", {"command": "sleep 60; touch late"})]))
    await stack.seen(stopped, "tool_called")
    await stack.cancel(stopped)
    assert (await stack.wait(stopped))["status"] == "cancelled"
    [returned] = of_type(await stack.events(stopped), "tool_returned")
    assert returned["state"] == "cancelled"
    assert not await asyncio.to_thread((stack.workspace(stopped) / "late").exists)
