"""Invariants of every session with two sides: one step at a time, and all results before the next step."""

import json

import pytest

from tests.behaviour.conversations.talk import Talk, agent, chain
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.support.stack import Stack, eventually, of_type

APPROVE = declared_tool("approve", "summary")
STOP = {"session_stop": {"name": "approve", "message_property": "summary"}}


@pytest.mark.proves("S4-B01", "S4-B03")
async def test_steps_and_calls_run_one_after_another_and_an_error_is_a_result(stack: Stack) -> None:
    calls = [
        call("bash", command="sleep 0.5; echo one >> log"),
        call("explode"),
        call("bash", command="echo two >> log"),
        call("read_file", path="log"),
    ]
    a = prompt("order-a", {"calls": calls}, "Done.", tools=("bash", "explode", "read_file"))
    b = prompt("order-b", {"calls": [call("approve", summary="Fine.")]}, tools=(APPROVE,))
    await define(stack, "orderly", a, b, side_b=STOP)
    task_id = await stack.submit("Go.", agent="orderly")
    assert (await stack.wait(task_id))["status"] == "completed"
    events = await stack.events(task_id)
    tools = [(event["type"], event["tool"]) for event in of_type(events, "tool_called", "tool_returned")]
    in_order = [("tool_called", one["name"]) for one in calls]
    assert [one for one in tools if one[0] == "tool_called"][:4] == in_order
    # no call began before the previous one had returned
    assert tools[:8:2] == in_order and tools[1:8:2] == [("tool_returned", one["name"]) for one in calls]
    nodes = await stack.nodes(task_id)
    results = [node["body"]["results"] for node in nodes if node["kind"] == "tool_results"][0]
    assert [one["failed"] for one in results] == [False, True, False, False]
    assert results[3]["text"].index("one") < results[3]["text"].index("two")
    # everything from a step was in the tree before the next reply
    assert [(node["kind"], node["step"]) for node in nodes] == [
        ("user", 1),
        ("assistant", 1),
        ("tool_results", 2),
        ("assistant", 2),
        ("assistant", 3),
        ("tool_results", 3),
    ]


@pytest.mark.proves("S4-B03")
async def test_a_queued_message_enters_before_the_next_step(stack: Stack) -> None:
    a = prompt("queue-a", {"calls": [call("bash", command="sleep 3")]}, "Done.", tools=("bash",))
    b = prompt("queue-b", {"calls": [call("approve", summary="Fine.")]}, tools=(APPROVE,))
    await define(stack, "queueing", a, b, side_b=STOP)
    task_id = await stack.submit("Go.", agent="queueing")
    await stack.seen(task_id, "tool_called")
    sent = await stack.http.post(f"/tasks/{task_id}/steer", json={"message": "Make it blue."})
    assert sent.is_success, sent.text
    assert (await stack.wait(task_id))["status"] == "completed"
    asked = [json.dumps(one["body"]) for one in await stack.asked(task_id)]
    assert ["Make it blue." in one for one in asked] == [False, True, True]  # both sides see messages from outside


@pytest.mark.proves("S4-B08")
@pytest.mark.parametrize("blocking", [True, False])
async def test_a_parent_learns_that_the_turns_of_its_child_are_used_up(stack: Stack, blocking: bool) -> None:
    sides = prompt("rally-a", "Ping."), prompt("rally-b", "Pong.")
    await define(stack, "rally", *sides, max_session_turns=2, expose_as_tool=True)
    name = f"rally-lead-{blocking}".lower()
    lead = agent(name, subagent_tools=[{"name": "rally", "blocking": blocking}])
    (await stack.http.put(f"/agents/{name}", json=lead)).raise_for_status()
    talk = await Talk.done(stack, chain([("rally", {"message": "Play."})], last="" if blocking else "Off."), name)
    await talk.rest()
    [child] = await talk.children()
    assert child.reason == "turn_limit"
    head = f"Subagent (reference: {child.thread_id}) has "

    async def received() -> list[str]:
        own = [row.id for row in await talk.sessions() if row.thread_id == talk.id]
        return [one for id in own for one in await talk.prompts(id) if one.startswith(head)]

    [text] = await talk.results() if blocking else await eventually(received, what="the parent received it")
    await talk.rest()
    assert len(await received()) == (not blocking)
    assert text.startswith(head) and "turn" in text and "Pong." in text, text
