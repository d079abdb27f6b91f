"""Approvals of tools other than the platform's: declared tools, subagents and handoffs of an agent."""

from typing import Any

import pytest
import pytest_asyncio

from domain.redaction import REDACTED
from domain.sessions.session import Status
from tests.behaviour.conversations.talk import chain
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.behaviour.supervision.people import agent, answer, waiting
from tests.support.stack import Stack, eventually, of_type

AS_JSON = {"Accept": "application/json"}
APPROVE = declared_tool("approve", "summary")
RULES = [{"permission": one, "action": "ask"} for one in ("own_note", "own_child", "own_other")]


@pytest_asyncio.fixture(scope="module", autouse=True)
async def agents(people: Stack) -> None:
    approves = prompt("own_b", {"calls": [call("approve", summary="Fine.")]}, tools=(APPROVE,))
    stop = {"session_stop": {"name": "approve", "message_property": "summary"}}
    await define(people, "own_child", prompt("own_a", "A draft."), approves, side_b=stop, expose_as_tool=True)
    for definition in (
        agent("own_other", expose_as_tool=True),
        agent(
            "own_lead",
            may_ask=True,
            declared_tools=[declared_tool("own_note", "text"), APPROVE],  # the rules apply to its subagents too
            permissions=RULES,
            subagent_tools=[{"name": "own_child"}],
            handoffs=["own_other"],
        ),
    ):
        put = await people.http.put(f"/agents/{definition['name']}", json=definition)
        assert put.is_success, put.text


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


async def test_denied_call_of_an_agents_own_tool_is_not_run(people: Stack) -> None:
    task_id = await people.submit(chain([("own_note", {"text": "milk"})], last="Done."), "own_lead")
    [request] = await waiting(people, task_id)
    await answer(people, task_id, request["id"], {"approved": False, "notes": "not now"})
    await people.wait(task_id)
    [returned] = of_type(await people.events(task_id), "tool_returned")
    assert returned["state"] == "failed" and "A person denied this call: not now" in returned["preview"]


async def test_event_of_a_call_has_its_arguments_unless_they_are_long(people: Stack) -> None:
    short, odd = write("a.txt", '"quotes" and é'), write("c.txt", "nul \u0000")
    task_id = await people.submit(chain([write("b.txt", "long " * 1_000)], [short], [odd], last="Done."))
    await people.wait(task_id)
    calls = of_type(await people.events(task_id), "tool_called")
    assert [one["args"].split()[1] for one in calls] == ["b.txt", "a.txt", "c.txt"]
    assert [one.get("arguments") for one in calls] == [None, short[1], None]


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


async def test_rules_of_a_task_name_an_agents_own_tools(people: Stack) -> None:
    denied = [{"permission": one, "action": "deny"} for one in ("own_note", "own_child", "own_other")]
    wanted = chain([("own_note", {"text": "milk"}), ("own_child", {"message": "Look."})], last="Done.")
    task_id = await people.submit(wanted, "own_lead", permissions=denied)
    assert (await people.wait(task_id))["status"] == Status.COMPLETED
    returned = of_type(await people.events(task_id), "tool_returned")
    assert {one["tool"]: one["state"] for one in returned} == {"own_note": "failed", "own_child": "failed"}
    unknown = {"agent": "own_lead", "input": "x", "permissions": [{"permission": "own_nothing", "action": "deny"}]}
    refused = await people.http.post("/tasks", json=unknown)
    assert refused.status_code == 422 and "own_child" in refused.json()["errors"][0]["allowed"], refused.text
