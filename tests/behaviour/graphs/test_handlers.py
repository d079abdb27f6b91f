"""Handler sides: Python code takes the turns of a side, with or without a model on the other one."""

import json
from typing import Any

import pytest

from tests.behaviour.conversations.talk import asked
from tests.behaviour.graphs.duet import prompt
from tests.support.stack import Stack, of_type

pytestmark = pytest.mark.together


async def define(stack: Stack, name: str, handler: str, *replies: Any, **more: Any) -> str:
    """An agent with a scripted model on side A and a handler on side B."""
    a = prompt(f"{name}_a", *replies)
    fields = {
        "name": name,
        "description": "A model and a handler.",
        "side_a": {"prompt": a["name"], "label": "Player"},
        "side_b": {"handler": handler, "label": "Beat"},
        "prompts": {a["name"]: a},
        "max_session_turns": 20,
        "variables": {name: {"description": "x", "required": False} for name in ("BEATS", "SECONDS")},
        **more,
    }
    answer = await stack.http.put(f"/agents/{name}", json=fields)
    assert answer.is_success, answer.text
    return name


async def test_model_and_handler_take_turns_until_the_handler_ends_the_session(stack: Stack) -> None:
    await define(stack, "hs_duo", "metronome", "One.", "Two.", "Three.")
    task_id = await stack.submit("Play.", agent="hs_duo", context={"variables": {"BEATS": "3"}})
    record = await stack.wait(task_id)
    assert (record["status"], record["reason"]) == ("completed", "goal_reached")
    assert (await stack.result(task_id))["output"] == "Enough after 3."
    events = await stack.events(task_id)
    assert [(event["speaker"], event["text"]) for event in of_type(events, "message")] == [
        ("Player", "One."),
        ("Beat", "Beat 1."),
        ("Player", "Two."),
        ("Beat", "Beat 2."),
        ("Player", "Three."),
        ("Beat", "Enough after 3."),
    ]
    assert [event["message"] for event in of_type(events, "progress")] == ["beat 1", "beat 2", "done"]
    assert [event["model"] for event in of_type(events, "usage_updated")][1] == "handler:metronome"
    asked = [one["body"] for one in await stack.asked(task_id)]
    assert len(asked) == 3 and "Beat 2." in json.dumps(asked[2]) and record["usage"]["llm_calls"] == 3
    row = await stack.pool.fetchrow("SELECT status_text FROM sessions WHERE id = $1", task_id)
    assert row is not None and row["status_text"] == "done"


async def test_handler_alone_with_people_calls_tools_and_answers(stack: Stack) -> None:
    fields = {
        "name": "hs_alone",
        "description": "Code that answers people.",
        "side_a": {"handler": "caller"},
        "side_b": "human",
        "tools": ["list_files"],
    }
    assert (await stack.http.put("/agents/hs_alone", json=fields)).is_success
    task_id = await stack.submit("Look.", agent="hs_alone")
    record = await stack.wait(task_id)
    assert (record["status"], record["usage"]["llm_calls"]) == ("completed", 0)
    assert (await stack.result(task_id))["output"] == "list_files: ok"
    [returned] = of_type(await stack.events(task_id), "tool_returned")
    assert (returned["tool"], returned["state"]) == ("list_files", "ok")
    denied = [{"permission": "list_files", "action": "deny"}]
    task_id = await stack.submit("Look.", agent="hs_alone", permissions=denied)
    assert (await stack.wait(task_id))["status"] == "completed"
    # the rules are the same as for a model's call
    assert (await stack.result(task_id))["output"] == "list_files: failed"


@pytest.mark.parametrize(
    ("handler", "kind", "text"),
    [
        ("quits", "session_fail", "I give up."),
        ("broken", "handler_failed", "The handler 'broken' failed (RuntimeError)."),
        ("speechless", "handler_failed", "needs a text or a tool call"),
    ],
)
async def test_handler_that_fails_ends_its_session(stack: Stack, handler: str, kind: str, text: str) -> None:
    await define(stack, f"hs_{handler}", handler, "Go.")
    task_id = await stack.submit("Play.", agent=f"hs_{handler}")
    record = await stack.wait(task_id)
    assert (record["status"], record["error"]["type"]) == ("failed", kind)
    assert text in record["error"]["message"]
    history = (await stack.session(task_id).fetch_history()).to_json()
    assert "secret-of-an-exception" not in json.dumps(await stack.events(task_id)) + history


async def test_two_agents_converse_over_many_turns_addressed_by_key(stack: Stack) -> None:
    """Each agent has its own thread, which is addressed by name, and receives the new messages of the other."""
    hand_in: dict[str, Any] = {"side_b": {"handler": "hand_in"}, "expose_as_tool": True}
    for name in ("ada", "ben"):
        said = prompt(f"cv_{name}", *(f"{name} says {number}." for number in range(1, 6)))
        fields = {"side_a": {"prompt": said["name"]}, "prompts": {said["name"]: said}, **hand_in}
        answer = await stack.http.put(f"/agents/{name}", json={"name": name, "description": "Talks.", **fields})
        assert answer.is_success, answer.text
    talk = {
        "name": "cv_talk",
        "description": "Two agents converse.",
        "side_a": {"handler": "round_table", "label": "Chair"},
        "subagent_tools": [{"name": name, "resumable": True} for name in ("ada", "ben")],
        "variables": {"ROUNDS": {"description": "how often each speaks", "required": False}},
        "env": {"ROUNDS": "5"},
    }
    assert (await stack.http.put("/agents/cv_talk", json=talk)).is_success
    task_id = await stack.submit("Greet each other.", agent="cv_talk")
    assert (await stack.wait(task_id))["status"] == "completed"
    sessions = await stack.pool.fetch(
        "SELECT id, agent, thread_id FROM sessions WHERE spawned_by = $1 ORDER BY created_at", task_id
    )
    assert [row["agent"] for row in sessions] == ["ada", "ben"] * 5 and len({row["thread_id"] for row in sessions}) == 2
    output = (await stack.result(task_id))["output"]
    minutes = [f"{name}: {name} says {number}." for number in range(1, 6) for name in ("ada", "ben")]
    assert output.endswith("\n\n".join(minutes))
    # the last turn of one agent received the last message of the other, on the thread with all earlier messages
    last = await stack.nodes(sessions[-1]["id"])
    assert last[0]["body"]["parts"][0]["text"] == "ada: ada says 5."
    [request] = await asked(stack, "ada: ada says 5.")
    assert all(f"ben says {number}." in str(request["messages"]) for number in range(1, 5))
