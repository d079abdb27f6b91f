"""A run uses the tenant's shared values of the time when it begins, not of the time when it was planned."""

from typing import Any

import pytest_asyncio

from tests.behaviour.conversations.talk import asked, say
from tests.behaviour.schedules.clock import create, trigger
from tests.behaviour.triggers.sender import Sender
from tests.support.stack import Stack, calls

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
