"""kill -9 of the worker while agent graphs run: a handler's turn, a handoff, immediate children."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.behaviour.conversations.talk import Gate, agent, chain, say
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.faults.damage import lines
from tests.support.stack import Stack, eventually, of_type

APPROVE = declared_tool("approve", "summary")
STOP = {"session_stop": {"name": "approve", "message_property": "summary"}}
APPROVES = {"calls": [call("approve", summary="Fine.")]}


@pytest_asyncio.fixture(scope="module")
async def survivors(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Any]]:
    """Kill the worker once while several sessions run, each at a different point."""
    ledger = tmp_path_factory.mktemp("ledgers")
    turns = ledger / "turns"
    gate = Gate()
    # a handler that is interrupted
    handled: dict[str, Any] = {
        "name": "gk_handled",
        "description": "A model and a handler.",
        "side_a": {"prompt": "gk_player"},
        "side_b": {"handler": "metronome"},
        "prompts": {"gk_player": prompt("gk_player", "One.")},
        "variables": {name: {"description": "x", "required": False} for name in ("BEATS", "SECONDS", "LEDGER")},
        "env": {"BEATS": "1", "SECONDS": "4", "LEDGER": str(turns)},
    }
    # immediate children that wait at a gate, before the first model step
    waits = prompt("gk_waits", {"calls": [call("wait_for", path=str(gate.path))]}, "Done.", tools=("wait_for",))
    reviewer = prompt("gk_reviewer", APPROVES, tools=(APPROVE,))
    await define(stack, "gk_scout", waits, reviewer, side_b=STOP, expose_as_tool=True, max_session_turns=6)
    await define(stack, "gk_guard", waits, reviewer, side_b=STOP, expose_as_tool=True, max_session_turns=6)
    immediate = [{"name": name, "immediate": True} for name in ("gk_scout", "gk_guard")]
    lead = agent("gk_lead", subagent_tools=immediate, expose_as_tool=True)
    for fields in (handled, lead, agent("gk_desk", handoffs=["gk_lead"])):
        answer = await stack.http.put(f"/agents/{fields['name']}", json=fields)
        assert answer.is_success, answer.text
    tasks = {
        "handled": await stack.submit("Go.", agent="gk_handled"),
        "immediate": await stack.submit(say("All clear."), agent="gk_lead"),
        "handoff": await stack.submit(chain([("gk_lead", {})], last="Taken over."), agent="gk_desk"),
    }
    await eventually(lambda: lines(turns), what="the handler takes its turn")

    async def waiting() -> bool:
        for name in ("immediate", "handoff"):
            children = await _children(stack, tasks[name])
            if not children or not of_type(await stack.events(children[0]["id"]), "tool_called"):
                return False
        return True

    await eventually(waiting, what="immediate children work")
    killed = await stack.kill("worker")
    await stack.back("worker", killed)
    gate.open()
    yield {**tasks, "turns": turns}


async def _children(stack: Stack, task_id: str) -> list[dict[str, Any]]:
    rows = await stack.pool.fetch(
        "SELECT id, agent, status, thread_id FROM sessions WHERE spawned_by = $1 ORDER BY id", task_id
    )
    return [dict(row) for row in rows]


async def test_turn_of_a_handler_is_taken_again_and_recorded_once(stack: Stack, survivors: dict[str, Any]) -> None:
    record = await stack.wait(survivors["handled"])
    assert record["status"] == "completed"
    assert (await stack.result(survivors["handled"]))["output"] == "Enough after 1."
    tried = [line.split()[0] for line in await lines(survivors["turns"])]
    assert len(tried) == 2 and len(set(tried)) == 1  # two attempts, one key
    replies = [node for node in await stack.nodes(survivors["handled"]) if node["kind"] == "assistant"]
    assert len(replies) == 2


@pytest.mark.parametrize("name", ["immediate", "handoff"])
async def test_immediate_children_start_exactly_once(stack: Stack, survivors: dict[str, Any], name: str) -> None:
    record = await stack.wait(survivors[name])
    assert record["status"] == "completed"
    children = await _children(stack, survivors[name])
    assert sorted(child["agent"] for child in children) in (["gk_guard", "gk_scout"],)
    assert {child["status"] for child in children} == {"completed"}
    events = await stack.events(survivors[name])
    assert len(of_type(events, "handed_over")) == (name == "handoff")
    started, ended = of_type(events, "subagent_started"), of_type(events, "subagent_ended")
    assert len(started) == len(ended) == 2
    message = of_type(events, "message")[-1]
    assert message["seq"] > ended[-1]["seq"]  # the first model step of the agent waited for both
