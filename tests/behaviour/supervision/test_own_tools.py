"""Approvals of tools other than the platform's: declared tools, subagents, handoffs, and what a task brings."""

import asyncio
import json
from typing import Any

import pytest
import pytest_asyncio

from domain.redaction import REDACTED
from domain.sessions.session import Status
from tests.behaviour.conversations.talk import chain
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.behaviour.supervision.people import agent, answer, waiting
from tests.support.launch import TESTER
from tests.support.stack import Stack, calls, eventually, of_type, steps

AS_JSON = {"Accept": "application/json"}
APPROVE = declared_tool("approve", "summary")
RULES = [{"permission": one, "action": "ask"} for one in ("own_note", "own_child", "own_other")]


@pytest_asyncio.fixture(scope="module", autouse=True)
async def agents(people: Stack) -> None:
    approves = prompt("own_b", {"calls": [call("approve", summary="Fine.")]}, tools=(APPROVE,))
    stop = {"session_stop": {"name": "approve", "message_property": "summary"}}
    await define(people, "own_child", prompt("own_a", "A draft."), approves, side_b=stop, expose_as_tool=True)
    await people.define(
        agent("own_other", expose_as_tool=True),
        agent(
            "own_lead",
            may_ask=True,
            declared_tools=[declared_tool("own_note", "text"), APPROVE],  # the rules apply to its subagents too
            permissions=RULES,
            subagent_tools=[{"name": "own_child"}],
            handoffs=["own_other"],
        ),
    )


@pytest.mark.parametrize(
    ("wanted", "editable"),
    [
        (("own_note", {"text": "milk"}), True),
        (("own_child", {"message": "Look."}), False),
        (("own_other", {"message": "Yours."}), False),
    ],
    ids=["declared", "subagent", "handoff"],
)
async def test_call_of_an_agents_own_tool_waits_for_approval_and_then_runs(
    people: Stack, wanted: tuple[str, dict[str, Any]], editable: bool
) -> None:
    tool, arguments = wanted
    task_id = await people.submit(chain([("list_files", {"path": "."}), wanted], last="Done."), "own_lead")
    [request] = await waiting(people, task_id)
    assert request["question"].startswith(f"May {tool} run: ")
    assert (request["details"]["tool"], request["details"]["arguments"]) == (tool, arguments)
    assert ("arguments" in request["answer_schema"]["properties"]) == editable

    async def counted() -> bool:
        return bool((await people.record(task_id))["usage"]["tool_invocations"] == 1)

    await eventually(counted, what="the call that has ended is counted while the other waits")
    said = await answer(people, task_id, request["id"], {"approved": True})
    assert said.status_code == 202, said.text
    assert (await people.wait(task_id))["status"] == Status.COMPLETED
    called = {one["tool"]: one["arguments"] for one in of_type(await people.events(task_id), "tool_called")}
    assert called == {"list_files": {"path": "."}, tool: arguments}
    states = {one["tool"]: one["state"] for one in of_type(await people.events(task_id), "tool_returned")}
    assert states[tool] == "ok", states


async def test_keys_in_arguments_and_results_are_used_and_not_shown(people: Stack) -> None:
    """One call is claimed, and one only reads: their events are written in different places."""
    key = "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUv"
    reads = [("read_file", {"path": path}) for path in ("d.txt", key)]
    script = chain([write("d.txt", key)], *([one] for one in reads), last="Done.")
    task_id = await people.submit(
        script.replace(key, key.replace("-", "\\u002d"))
    )  # text that people wrote is shown unchanged
    await people.wait(task_id)
    calls = of_type(await people.events(task_id), "tool_called")
    assert [list(one["arguments"].values()) for one in calls] == [["d.txt", REDACTED], ["d.txt"], [REDACTED]]
    pages = ("events", "trace")
    shown = [(await people.http.get(f"/tasks/{task_id}/{page}", headers=AS_JSON)).text for page in pages]
    shown.append((await people.http.get(f"/sessions/{task_id}")).text)
    assert [(key[7:] in text, REDACTED in text) for text in shown] == [(False, True)] * 3
    kept = await people.http.get(f"/tasks/{task_id}/workspace/file", params={"path": "d.txt"})
    assert kept.text == key


def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": content}


MODEL = "claude-haiku-4-5"


@pytest.mark.proves("S3-19")
async def test_task_sets_files_notes_model_tools_and_rules_and_its_tools_act_for_it(people: Stack) -> None:
    stack = people
    traveller = agent("own-traveller", tools=[*TESTER["tools"], "whoami"])
    assert (await stack.http.put("/agents/own-traveller", json=traveller)).is_success
    sent = await stack.http.post("/files", params={"name": "notes.md"}, content=b"the port is 8080\n")
    bash = [("bash", {"command": f"echo x > {name}"}) for name in ("kept", "secret", "secret-but-allowed", "asked")]
    wanted = calls(("read_file", {"path": "notes.md"}), *bash, ("save_artifact", {"path": "kept"}), ("whoami", {}))
    task_id = await stack.submit(
        wanted,
        "own-traveller",
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
    assert f"I act for own-traveller in {task_id} of {task_id}." in json.dumps(results[-1])
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
