"""Fire: atomic, once, refused without side effects; messages that no commit used return to the mailbox."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from domain.sessions.session import Status
from store.sessions import SessionRow
from tests.behaviour.conversations.talk import Gate, Scenes, Talk, async_task, chain, say
from tests.support.stack import Stack, eventually

scene = Scenes(at_once=4)
PROBLEM = "urn:errand:problem:"


async def with_outcomes(stack: Stack, count: int) -> Talk:
    talk = await Talk.done(stack, chain([async_task(say(f"Part {n}.")) for n in range(count)], last="Off."))
    await talk.posted(count)
    return talk


@scene
async def stormed(stack: Stack) -> tuple[Talk, list[int], float]:
    """Ten concurrent fires for twenty outcomes; half of them may be queued."""
    talk = await with_outcomes(stack, 20)
    began = time.monotonic()
    fires = [talk.try_fire(f"Caller {n}.", if_busy="queue" if n % 2 else "reject") for n in range(10)]
    answers = await asyncio.gather(*fires)
    took = time.monotonic() - began
    await talk.rest()
    return talk, [answer.status_code for answer in answers], took


@pytest.mark.proves("S0-27", "D6")
async def test_concurrent_fires_never_share_a_message(team: Stack) -> None:
    talk, codes, _ = await stormed(team)
    assert codes.count(202) >= 1 and set(codes) <= {202, 409, 422}
    received = Counter(await talk.delivered_sources())
    children = {row.id for row in await talk.children()}
    assert set(received) == children and set(received.values()) == {1}
    fired = [row for row in await talk.sessions() if row.trigger == "fire"]
    assert len(fired) == codes.count(202)
    assert {message.delivered_to for message in await talk.mail()} <= {row.id for row in fired}


@pytest.mark.proves("S0-38", "S0-28")
async def test_all_outcomes_are_delivered_in_one_continuation(team: Stack) -> None:
    talk, _, took = await stormed(team)
    delivered = {message.delivered_to for message in await talk.mail()}
    assert len(delivered) == 1
    prompt = (await talk.prompts(delivered.pop() or ""))[0]
    assert prompt.count("[completed] (session: ") == 20
    places = [prompt.index(f"(session: {message.source_session_id})") for message in await talk.mail()]
    assert places == sorted(places)
    assert took < 20  # all ten were answered; a worker needs milliseconds for each decision


@scene
async def in_vain(stack: Stack) -> tuple[Talk, SessionRow, list[Any], SessionRow]:
    """The first continuation fails before it says anything."""
    talk = await with_outcomes(stack, 2)
    failed = await talk.fire("[[fault:400]]")
    await asyncio.sleep(1)  # during this time nothing is fired automatically

    async def reported() -> Any:
        live = await talk.shown("/mailbox", live="true")
        return live if live["pending_count"] else None

    after = [
        await talk.mail(),
        len(await talk.sessions()),
        await eventually(reported, what="the conversation has its outcomes again"),
    ]
    return talk, failed, after, await talk.fire("Now properly.")


@pytest.mark.proves("S0-B46", "S0-B05", "D5")
async def test_continuation_without_a_commit_returns_its_messages_to_the_mailbox(team: Stack) -> None:
    talk, failed, [mail, sessions, live], second = await in_vain(team)
    assert failed.status is Status.FAILED and not failed.committed
    assert [message.delivered_to for message in mail] == [None, None]
    assert sessions == 4 and live["pending_count"] == 2  # nothing was fired automatically
    assert second.status is Status.COMPLETED
    assert {message.delivered_to for message in await talk.mail()} == {second.id}
    assert second.parent_session_id == talk.id  # it does not continue the session that failed


@pytest.mark.proves("S0-B01", "S0-B02")
async def test_fire_of_a_busy_conversation_is_refused_with_its_session(team: Stack) -> None:
    talk, gate = await with_outcomes(team, 1), Gate()
    working = await talk.say(gate.then())
    await team.seen(working, "tool_called")
    body = {"conversation_id": talk.id, "input": "Hello?", "transport": "stream"}
    for answer in (await talk.try_fire(), await team.http.post("/conversations/run", json=body)):
        assert (answer.status_code, answer.json()["type"]) == (409, f"{PROBLEM}conversation-busy")
        active = answer.json()["active_session"]
        assert active["session_id"] == working and set(active) == {"session_id", "stream_key", "transport"}
    steered = await team.http.post("/conversations/run", json={**body, "if_busy": "steer"})
    assert steered.status_code == 202 and steered.json()["session_id"] == working
    queued = await team.http.post("/conversations/run", json={**body, "if_busy": "queue"})
    assert queued.status_code == 202 and queued.json()["queued"] is True
    assert (await team.http.get(f"/tasks/{queued.json()['session_id']}")).json()["queued"] is True
    assert (await talk.mail())[0].delivered_to is None
    gate.open()
    await talk.ended(working)
    after = await talk.ended(queued.json()["session_id"])
    assert after.parent_session_id == working
    assert "Hello?" in "".join(await talk.prompts(working))


@pytest.mark.proves("S0-B04")
async def test_impossible_fire_creates_nothing(team: Stack) -> None:
    talk = await with_outcomes(team, 1)
    before = [row.id for row in await talk.sessions()]
    unknown = await team.http.post(f"/conversations/{'0' * 26}/fire", json={})
    assert unknown.status_code == 404
    agent = await talk.try_fire(agent="nobody")
    assert agent.status_code in (404, 422)
    transport = await talk.try_fire(transport="pigeon")
    assert (transport.status_code, transport.json()["type"]) == (422, f"{PROBLEM}unknown-transport")
    assert [row.id for row in await talk.sessions()] == before
    assert [message.delivered_to for message in await talk.mail()] == [None]
    fired = await talk.fire(agent="waker")
    assert fired.agent == "waker"


@pytest.mark.exactly_once
async def test_a_repeated_fire_is_answered_and_not_repeated(team: Stack) -> None:
    """This also holds after the conversation has closed and its state is loaded from the store."""
    talk = await with_outcomes(team, 1)
    keyed = {"Idempotency-Key": f"fire-{talk.id}"}
    first = await team.http.post(f"/conversations/{talk.id}/fire", json={}, headers=keyed)
    assert first.status_code == 202
    await talk.ended(first.json()["session_id"])

    async def closed() -> bool:
        handle = team.client.get_workflow_handle(f"conversation/{talk.id}")
        return (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED

    await eventually(closed, what="the conversation closed")
    again = await team.http.post(f"/conversations/{talk.id}/fire", json={}, headers=keyed)
    assert (again.status_code, again.json()) == (202, first.json())
    assert len([row for row in await talk.sessions() if row.trigger == "fire"]) == 1
