"""Termination of one subagent: soft, permanent, and visible to its parent; and the queue of a thread."""

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.behaviour.conversations.talk import Gate, Talk, agent, chain
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.support.stack import Stack, eventually, of_type

STOP = {"name": "approve", "message_property": "summary"}
SECONDS = f"61.{os.getpid()}"  # the argument of a command, by which its process is found
APPROVE = declared_tool("approve", "summary")
SIDES: dict[str, Any] = {"side_b": {"session_stop": STOP}, "expose_as_tool": True, "max_session_turns": 20}


@pytest_asyncio.fixture(scope="module", autouse=True)
async def family(stack: Stack) -> None:
    approver = {"calls": [call("approve", summary="Fine.")]}
    await define(stack, "te_quick", prompt("te_quick_a", "Done."), prompt("te_b", approver, tools=(APPROVE,)), **SIDES)
    late = prompt("te_late_a", "Done.", delay=3)
    await define(stack, "te_late", late, prompt("te_b", approver, tools=(APPROVE,)), **SIDES)
    slow = prompt("te_slow_a", {"calls": [call("bash", command=f"sleep {SECONDS}")]}, "Done.", tools=("bash",))
    await define(stack, "te_slow", slow, prompt("te_b", approver, tools=(APPROVE,)), **SIDES)
    wordy = prompt("te_wordy_a", "word " * 400, delay=0.2)
    await define(stack, "te_wordy", wordy, prompt("te_b", approver, tools=(APPROVE,)), **SIDES)
    config = [
        {"name": name, "blocking": False, "resumable": {"max_instances": 1}}
        for name in ("te_quick", "te_late", "te_slow", "te_wordy")
    ]
    assert (await stack.http.put("/agents/te_lead", json=agent("te_lead", subagent_tools=config))).is_success


def _commands() -> list[bytes]:
    """Return the running processes of the command."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # the process has just ended
            found.append(process.read_bytes())
    return [line for line in found if SECONDS.encode() in line]


async def _command_runs() -> bool:
    return bool(_commands())


async def _command_is_gone() -> bool:
    return not _commands()


def create(name: str, agent: str) -> Any:
    return "subagent_create", {"agent": agent, "name": name, "message": "Go."}


@pytest.mark.proves("S4-33")
@pytest.mark.parametrize(("child_agent", "sign"), [("te_slow", "tool_called"), ("te_wordy", "message_delta")])
async def test_terminate_stops_sessions_rejects_messages_and_shows_in_the_registry(
    stack: Stack, child_agent: str, sign: str
) -> None:
    gate = Gate()
    further = ("subagent_message", {"target": "ann", "message": "Still there?"})
    talk = await Talk.begin(stack, chain([create("ann", child_agent)], [gate.call], [further]), "te_lead")
    child = await talk.child()
    await stack.seen(child.id, sign)
    if child_agent == "te_slow":
        await eventually(_command_runs, what="the command runs")
    answer = await stack.http.post(f"/threads/{child.thread_id}/terminate")
    assert answer.status_code == 202 and answer.json()["session_ids"] == [child.id]
    ended = await asyncio.wait_for(talk.ended(child.id), 20)  # long before its call would have ended
    assert (ended.status, ended.reason) == ("cancelled", "terminated")
    if child_agent == "te_slow":
        await eventually(_command_is_gone, what="the running command was ended")
    steered = await stack.http.post(f"/tasks/{child.id}/steer", json={"message": "Hello?"})
    assert steered.status_code in (404, 409)
    gate.open()
    results = await talk.results()
    assert "was terminated and can be sent nothing" in results[2]
    await talk.rest()
    [entry] = (await talk.shown())["children"]
    assert (entry["name"], entry["status"]) == ("ann", "terminated")
    assert [row.id for row in await talk.children()] == [child.id]  # no session started there
    query = "SELECT count(*) FROM inbox WHERE thread_id = $1 AND taken_by IS NULL"
    assert await stack.pool.fetchval(query, child.thread_id) == 0  # and no message waits there
    again = await stack.http.post(f"/threads/{child.thread_id}/terminate")
    assert again.status_code == 202 and again.json()["stopped"] == 0
    # the history is kept
    shown = (await stack.http.get(f"/sessions/{child.id}")).json()
    assert shown["display_messages"]


async def test_tool_terminates_an_instance_whose_place_is_free_again_but_not_its_name(stack: Stack) -> None:
    steps = chain(
        [create("ann", "te_slow")],
        [("subagent_terminate", {"target": "ann", "reason": "no longer needed"})],
        [create("ann", "te_slow")],
        [create("ben", "te_quick")],
        [("subagent_terminate", {"target": "nobody"})],
    )
    talk = await Talk.done(stack, steps, "te_lead")
    results = await talk.results()
    assert "(reference:" in results[1] and "was terminated." in results[1]
    assert "Use another name" in results[2] and "There is no subagent 'nobody'" in results[4]
    await talk.rest()
    entries = (await talk.shown())["children"]
    assert [(one["name"], one["status"]) for one in entries] == [("ann", "terminated"), ("ben", "completed")]


@pytest.mark.proves("S4-32")
async def test_messages_are_taken_in_order_before_the_next_step_and_else_begin_a_turn(stack: Stack) -> None:
    gate = Gate()
    talk = await Talk.begin(stack, gate.then("Through."), "te_lead")
    await stack.seen(talk.id, "tool_called")
    for number in range(5):
        sent = await stack.http.post(f"/tasks/{talk.id}/steer", json={"message": f"note {number}"})
        assert sent.status_code == 202
    waiting = await stack.pool.fetch("SELECT taken_by FROM inbox WHERE thread_id = $1 ORDER BY number", talk.id)
    assert [row["taken_by"] for row in waiting[-5:]] == [None] * 5
    await stack.back("worker", await stack.kill("worker"))  # they are durable: the next worker has all of them
    gate.open()
    await talk.ended(talk.id)
    nodes = [node for node in await stack.nodes(talk.id) if node["kind"] == "user"]
    texts = [node["body"]["parts"][0]["text"] for node in nodes]
    assert texts[1:] == [f"note {number}" for number in range(5)] and {node["step"] for node in nodes[1:]} == {2}
    # when nothing is running, the result of a background child starts a turn
    later = await talk.say(chain([create("bob", "te_late")], last="Off."))
    await talk.ended(later)

    async def woken() -> Any:
        rows = [row for row in await talk.sessions() if row.thread_id == talk.id]
        return rows[2] if len(rows) > 2 else None

    session = await eventually(woken, what="a turn for the queued message")
    assert session.trigger == "async_subagent_result"
    assert of_type(await stack.events(session.id), "task_submitted") and json.dumps(session.spec)
