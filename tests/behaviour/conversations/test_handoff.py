"""Handoff: another agent takes over the thread, keeps its history, and handles the turns that follow."""

from typing import Any

import pytest
import pytest_asyncio

from store import messages
from tests.behaviour.conversations.talk import Talk, agent, asked, chain, say
from tests.support.stack import Stack, of_type

BILLING = "hand_billing"
REPAIRS = "hand_repairs"


@pytest_asyncio.fixture(scope="module", autouse=True)
async def desk(stack: Stack) -> None:
    exposed = {"expose_as_tool": True, "tool_description": "Settles invoices."}
    for definition in (
        agent(BILLING, prompt="You settle invoices.", **exposed),
        agent(REPAIRS, prompt="You repair things.", expose_as_tool=True, tools=["list_files"]),
        agent("hand_desk", prompt="You are the desk.", handoffs=[BILLING, REPAIRS]),
    ):
        answer = await stack.http.put(f"/agents/{definition['name']}", json=definition)
        assert answer.is_success, answer.text


def systems(requests: list[dict[str, Any]]) -> list[str]:
    return [request["system"][0]["text"].split('"')[1] for request in requests]


async def speakers(stack: Stack, session_id: str) -> list[str]:
    nodes = await messages.of_session(stack.pool, "default", session_id)
    return [node.author for node in nodes if node.kind == "assistant"]


@pytest.mark.proves("S4-12")
async def test_called_agent_takes_over_the_thread_with_its_history(stack: Stack) -> None:
    talk = await Talk.done(stack, chain([(BILLING, {"message": "an invoice"})], last="Settled."), "hand_desk")
    [ref] = [line for line in (await talk.prompts(talk.id))[0].splitlines() if line.startswith("ref ")]
    requests = await asked(stack, ref)
    assert systems(requests) == ["hand_desk", BILLING]
    offered = {tool["name"]: tool["description"] for tool in requests[0]["tools"]}
    assert "Settles invoices." in offered[BILLING] and REPAIRS in offered
    assert BILLING not in {tool["name"] for tool in requests[1]["tools"]}
    nodes = await stack.nodes(talk.id)
    assert await speakers(stack, talk.id) == ["hand_desk", BILLING]
    [result] = [node for node in nodes if node["kind"] == "tool_results"]
    assert result["body"]["results"][0]["text"] == f"Handed over to {BILLING}."
    [event] = of_type(await stack.events(talk.id), "handed_over")
    assert (event["from_agent"], event["to_agent"], event["step"]) == ("hand_desk", BILLING, 1)
    shown = await talk.shown()
    assert shown["threads"][0]["thread_id"] == talk.id and shown["threads"][0]["agent"] == BILLING
    assert (shown["sessions"][0]["agent"], shown["sessions"][0]["handed_to"]) == ("hand_desk", BILLING)
    trace = (await stack.http.get(f"/tasks/{talk.id}/trace")).json()
    assert [mark["text"] for mark in trace["marks"] if mark["type"] == "handed_over"] == [BILLING]


async def test_later_turns_of_the_thread_are_those_of_the_agent_that_took_over(stack: Stack) -> None:
    talk = await Talk.done(stack, chain([(BILLING, {})], last="Settled."), "hand_desk")
    later = await talk.ended(await talk.say(say("Once more.")))
    assert later.agent == BILLING and later.thread_id == talk.id
    assert await speakers(stack, later.id) == [BILLING]
