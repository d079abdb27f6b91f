"""Sessions with two AI sides: turns over one message tree, the rules that end them, and their results."""

import json
from typing import Any

import pytest

from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.support.stack import Stack, of_type

pytestmark = pytest.mark.together

APPROVE = declared_tool("approve", "summary", "files")
FAIL = declared_tool("give_up", "reason", "files")
STATUS = declared_tool("status", "text")
HAND_OVER = declared_tool("hand_over", "message")
STOP = {"session_stop": {"name": "approve", "message_property": "summary", "attachments_property": "files"}}
GIVE_UP = {"session_fail": {"name": "give_up", "message_property": "reason", "attachments_property": "files"}}


def _roles(request: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the role and texts of each message of a request, without the note about budgets and the test's tag."""
    shown = []
    for message in request["messages"]:
        texts = [block["text"].split("\nref ")[0] for block in message["content"] if block["type"] == "text"]
        shown.append((message["role"], [text for text in texts if not text.startswith("<budget>")]))
    return shown


async def _requests(stack: Stack, task_id: str) -> list[dict[str, Any]]:
    return [
        json.loads(entry["body"]) if isinstance(entry["body"], str) else entry["body"]
        for entry in await stack.asked(task_id)
    ]


@pytest.mark.proves("S4-05", "S4-B04")
async def test_each_side_sees_itself_as_assistant_and_the_other_as_user(stack: Stack) -> None:
    a = prompt(
        "pair-a",
        {"text": "Draft 1.", "calls": [call("list_files", path=".")]},
        "Draft 2.",
        "Draft 3.",
        tools=("list_files",),
    )
    b = prompt("pair-b", "Better, please.", {"calls": [call("approve", summary="Good.")]}, tools=(APPROVE,))
    await define(stack, "pair", a, b, side_b=STOP, max_session_turns=10)
    task_id = await stack.submit("Write a draft.", agent="pair")
    record = await stack.wait(task_id)
    assert (record["status"], record["reason"]) == ("completed", "goal_reached")
    assert (await stack.result(task_id))["output"] == "Good."
    requests = await _requests(stack, task_id)
    assert len(requests) == 5
    assert _roles(requests[2]) == [("user", ["Write a draft.", "Draft 1.", "Draft 2."])]
    assert _roles(requests[3]) == [
        ("user", ["Write a draft."]),
        ("assistant", ["Draft 1."]),
        ("user", []),
        ("assistant", ["Draft 2."]),
        ("user", ["Better, please."]),
    ]
    assert _roles(requests[4]) == [
        ("user", ["Write a draft.", "Draft 1.", "Draft 2."]),
        ("assistant", ["Better, please."]),
        ("user", ["Draft 3."]),
    ]
    # a side's requests contain no calls or results of the other side
    reviewing = json.dumps([requests[2], requests[4]])
    assert "list_files" not in reviewing and "tool_result" not in reviewing
    assert "approve" not in json.dumps(requests[3]["messages"])


@pytest.mark.proves("S4-06", "S4-07", "S4-09")
async def test_the_stop_binding_s_message_and_files_are_the_result(stack: Stack) -> None:
    write = {"calls": [call("write_file", path="asset.svg", content="<svg/>")]}
    a = prompt("make-a", write, "The asset is in asset.svg.", tools=("write_file", FAIL))
    look = {"text": "Looking.", "calls": [call("status", text="under review"), call("read_file", path="asset.svg")]}
    approve = {"calls": [call("approve", summary="A fine asset.", files=["asset.svg"])]}
    b = prompt("make-b", look, "It looks good.", approve, tools=("read_file", STATUS, APPROVE))
    side_b = {**STOP, "stop_on_response": False, "session_status": {"name": "status", "message_property": "text"}}
    await define(stack, "maker", a, b, side_a=GIVE_UP, side_b=side_b, max_session_turns=40)
    task_id = await stack.submit("Make an asset.", agent="maker")
    record = await stack.wait(task_id)
    assert (record["status"], record["reason"]) == ("completed", "goal_reached")
    result = await stack.result(task_id)
    assert result["output"] == "A fine asset."
    assert [artifact["name"] for artifact in result["artifacts"]] == ["asset.svg"]
    events = await stack.events(task_id)
    assert [event["message"] for event in of_type(events, "progress")] == ["under review"]
    # the reviewer's text did not end its turn: it was asked again, with a note
    requests = await _requests(stack, task_id)
    assert len(requests) == 5
    assert "did not end your turn" in json.dumps(requests[4]["messages"][-1])
    row = await stack.pool.fetchrow("SELECT status_text FROM sessions WHERE id = $1", task_id)
    assert row is not None and row["status_text"] == "under review"


@pytest.mark.proves("S4-07", "S4-08")  # a unit test has a table of the whole order
async def test_the_fail_tool_wins_over_the_stop_tool_and_a_limit_and_other_calls_run_first(stack: Stack) -> None:
    both = {
        "calls": [
            call("approve", summary="no"),
            call("give_up", reason="It cannot be drawn."),
            call("write_file", path="notes.txt", content="tried"),
        ]
    }
    a = prompt("torn-a", both, tools=("write_file", APPROVE, FAIL))
    b = prompt("torn-b", "Never asked.")
    await define(stack, "torn", a, b, side_a={**STOP, **GIVE_UP, "max_steps": 1}, max_session_turns=1)
    task_id = await stack.submit("Draw.", agent="torn")
    record = await stack.wait(task_id)
    assert (record["status"], record["reason"], record["partial"]) == ("failed", "error", False)
    assert (record["error"]["type"], record["error"]["message"]) == ("session_fail", "It cannot be drawn.")
    returned = of_type(await stack.events(task_id), "tool_returned")
    assert [(event["tool"], event["state"]) for event in returned] == [
        ("write_file", "ok"),
        ("approve", "ok"),
        ("give_up", "ok"),
    ]
    results = [node["body"]["results"] for node in await stack.nodes(task_id) if node["kind"] == "tool_results"]
    assert [len(one) for one in results] == [3]
    assert len(await stack.asked(task_id)) == 1  # no summary, because the tool ended the session, not the limit


@pytest.mark.proves("S4-10")
async def test_the_stop_tool_s_property_is_what_the_other_side_sees(stack: Stack) -> None:
    a = prompt("relay-a", {"text": "Musing.", "calls": [call("hand_over", message="Your move.")]}, tools=(HAND_OVER,))
    b = prompt("relay-b", {"calls": [call("approve", summary="Done.")]}, tools=(APPROVE,))
    side_a = {"stop_tool": "hand_over", "stop_tool_response_property": "message", "stop_on_response": False}
    await define(stack, "relay", a, b, side_a=side_a, side_b=STOP)
    task_id = await stack.submit("Begin.", agent="relay")
    assert (await stack.wait(task_id))["status"] == "completed"
    assert _roles((await _requests(stack, task_id))[1]) == [("user", ["Begin.", "Your move."])]


@pytest.mark.proves("S4-05", "S4-06", "S4-11")
async def test_max_session_turns_ends_the_session_with_a_summary(stack: Stack) -> None:
    await define(stack, "endless", prompt("end-a", "Ping."), prompt("end-b", "Pong."), max_session_turns=4)
    task_id = await stack.submit("Play.", agent="endless")
    record = await stack.wait(task_id)
    assert (record["status"], record["reason"], record["partial"]) == ("failed", "turn_limit", True)
    requests = await _requests(stack, task_id)
    assert len(requests) == 5  # four turns and the summary
    assert "reached its limit of turns" in json.dumps(requests[4])
    a = prompt("steps-a", {"calls": [call("list_files", path=".")]}, tools=("list_files",))
    await define(stack, "busy", a, prompt("steps-b", "Never."), side_a={"max_steps": 2}, max_session_turns=4)
    record = await stack.run("Look.", agent="busy")
    assert (record["status"], record["reason"], record["usage"]["tool_invocations"]) == ("failed", "step_limit", 2)
    # the steps of all turns are counted, even if each turn has only one step
    pair = prompt("talks-a", "Ping."), prompt("talks-b", "Pong.")
    await define(stack, "talker", *pair, side_a={"max_steps": 2}, max_session_turns=8)
    task_id = await stack.submit("Talk.", agent="talker")
    record = await stack.wait(task_id)
    assert (record["status"], record["reason"], record["error"]["type"]) == ("failed", "step_limit", "max_steps")
    assert len(await stack.asked(task_id)) == 5  # two turns of each side and the summary
