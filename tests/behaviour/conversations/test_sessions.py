"""The sessions of a conversation: the five ways in which one begins, and the two transports."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from domain.sessions.session import Status
from store.sessions import SessionRow
from tests.behaviour.conversations.talk import Gate, Scenes, Talk, async_delegate, chain, gather, say, task
from tests.support.stack import Stack

scene = Scenes()


@dataclass
class Line:
    """S1 dispatches S2 and commits; the caller continues with S5; S2 commits; the fire starts S6 after S5."""

    talk: Talk
    s1: SessionRow
    s2: SessionRow
    s5: SessionRow
    s6: SessionRow
    s2_while_s5: SessionRow
    before_fire: list[str]


@scene
async def line(stack: Stack) -> Line:
    gate = Gate()
    talk = await Talk.done(stack, chain([async_delegate("helper", gate.then())], last="Dispatched."))
    s2 = await talk.child()
    s5 = await talk.ended(await talk.say(say("Meanwhile.")))
    meanwhile = await talk.session(s2.id)
    gate.open()
    await talk.posted(1)
    before = [row.id for row in await talk.sessions()]
    s6 = await talk.fire("What now?")
    return Line(talk, await talk.session(talk.id), await talk.session(s2.id), s5, s6, meanwhile, before)


@scene
async def resumed(stack: Stack) -> tuple[Talk, list[SessionRow]]:
    talk = await Talk.done(stack, chain([async_delegate("helper", say("Remember blue."))], last="Off."))
    await talk.posted(1)
    second = await talk.say(chain([async_delegate("helper", "And which colour was it?")], last="Off again."))
    await talk.ended(second)
    await talk.posted(2)
    return talk, await talk.children()


@scene
async def forked(stack: Stack) -> tuple[SessionRow, SessionRow, SessionRow]:
    talk = await Talk.done(stack, say("First."))
    second = await talk.ended(await talk.say(say("Second.")))
    answer = await stack.http.post(
        "/conversations/run", json={"fork_from": talk.id, "input": "Go on.", "transport": "stream"}
    )
    assert answer.status_code == 202, answer.text
    fork = Talk(stack, answer.json()["conversation_id"])
    return await talk.session(talk.id), second, await fork.ended(answer.json()["session_id"])


async def place(stack: Stack, session_id: str) -> tuple[str | None, str, str, str | None]:
    """Return the row of the matrix that the API shows: the parent, the type, the conversation and the spawner."""
    shown = (await stack.http.get(f"/sessions/{session_id}")).json()
    task = (await stack.http.get(f"/tasks/{session_id}")).json()
    names = ("parent_session_id", "conversation_id", "spawned_by")
    assert [shown[name] for name in names] == [task[name] for name in names]
    return shown["parent_session_id"], shown["session_type"], shown["conversation_id"], shown["spawned_by"]


@pytest.mark.proves("S0-15")
async def test_root_session_has_no_parent(team: Stack) -> None:
    root = (await line(team)).s1
    assert await place(team, root.id) == (None, "agent", root.id, None)


@pytest.mark.proves("S0-16")
async def test_continuation_follows_the_session_before(team: Stack) -> None:
    result = await line(team)
    assert await place(team, result.s5.id) == (result.s1.id, "agent", result.s1.id, None)


@pytest.mark.proves("S0-17", "D9")
async def test_fork_begins_where_its_source_ended(team: Stack) -> None:
    root, second, fork = await forked(team)
    assert await place(team, fork.id) == (root.id, "agent", fork.id, None)
    assert fork.id != root.conversation_id
    # the fork does not have later turns
    assert fork.output is not None and "My last answer is still: First." in fork.output
    assert second.conversation_id == root.id


@pytest.mark.proves("S0-18", "D1")
async def test_fresh_subagent_begins_a_thread(team: Stack) -> None:
    result = await line(team)
    assert await place(team, result.s2.id) == (None, "async_subagent", result.s1.id, result.s1.id)
    [message] = await result.talk.mail()
    assert message.conversation_id == result.s1.conversation_id


@pytest.mark.proves("S0-19", "S0-37", "D3")
async def test_resumed_subagent_continues_its_thread(team: Stack) -> None:
    """A subagent is continued by its name, from another session than the one that dispatched it."""
    talk, [first, second] = await resumed(team)
    [*_, latest] = [row for row in await talk.sessions() if row.thread_id == talk.id]
    assert await place(team, first.id) == (None, "async_subagent", talk.id, talk.id)
    assert await place(team, second.id) == (first.id, "async_subagent", talk.id, latest.id)
    assert latest.id != talk.id and second.thread_id == first.thread_id
    tree = (await team.http.get(f"/conversations/{talk.id}")).json()["sessions"]
    below = {one["session_id"]: (root["session_id"], one) for root in tree for one in root["children"]}
    spawner, branch = below[second.id]
    assert (spawner, branch["spawned_by"], branch["parent_session_id"]) == (latest.id, latest.id, first.id)
    assert second.output is not None and "My last answer is still: Remember blue." in second.output


@pytest.mark.proves("S0-09", "S0-10")
async def test_parent_does_not_wait_and_the_caller_continues(team: Stack) -> None:
    result = await line(team)
    assert result.s1.status is Status.COMPLETED and result.s1.output == "Dispatched."
    assert result.s2_while_s5.status is Status.WORKING and result.s5.status is Status.COMPLETED
    assert result.s1.ended_at and result.s2.ended_at and result.s1.ended_at < result.s2.ended_at


@pytest.mark.proves("S0-11", "S0-12")
async def test_outcome_is_one_message_that_waits_for_a_fire(team: Stack) -> None:
    result = await line(team)
    [message] = await result.talk.mail()
    assert message.source_session_id == result.s2.id
    assert sorted(result.before_fire) == sorted([result.s1.id, result.s2.id, result.s5.id])


@pytest.mark.proves("S0-13", "S0-39", "D2")
async def test_fire_continues_the_main_thread(team: Stack) -> None:
    """It continues neither the session that dispatched nor the subagent's session, which committed last."""
    result = await line(team)
    assert result.s5.ended_at and result.s2.ended_at and result.s5.ended_at < result.s2.ended_at
    assert (result.s6.parent_session_id, result.s6.session_type) == (result.s5.id, "agent")


@pytest.mark.proves("S0-14", "S0-29", "S0-31")
async def test_fire_drains_renders_executes_and_marks(team: Stack) -> None:
    result = await line(team)
    answered = result.s2.output
    assert await result.talk.prompts(result.s6.id) == [
        f"Async subagent 'helper' (session: {result.s2.id}) completed:\n{answered}\n\n---\nUser message:\nWhat now?"
    ]
    [message] = await result.talk.mail()
    assert message.delivered_to == result.s6.id and result.s6.status is Status.COMPLETED


@dataclass
class Transports:
    sse: list[dict[str, Any]]
    handle: dict[str, Any]
    stream: list[dict[str, Any]]
    records: tuple[dict[str, Any], dict[str, Any]]


@scene
async def transports(stack: Stack) -> Transports:
    body = {"agent": "lead", "input": chain([("list_files", {})], last="Listed.")}
    seen: list[dict[str, Any]] = []
    async with stack.http.stream("POST", "/conversations/run", json={**body, "transport": "sse"}) as answer:
        assert answer.status_code == 200
        async for text in answer.aiter_lines():
            if text.startswith("data: "):
                seen.append(json.loads(text.removeprefix("data: ")))
    handle = (await stack.http.post("/conversations/run", json={**body, "transport": "stream"})).json()
    await stack.wait(handle["session_id"])
    ids = (seen[0]["session_id"], handle["session_id"])
    first, second = [(await stack.http.get(f"/sessions/{session_id}")).json() for session_id in ids]
    return Transports(seen, handle, await stack.events(handle["session_id"]), (first, second))


def comparable(events: list[dict[str, Any]]) -> list[Any]:
    """Return the events without the fields that differ between any two sessions."""
    compared = ("type", "seq", "step", "tool", "text", "status", "reason", "output", "result", "state")
    return [{name: event.get(name) for name in compared} for event in events if not event["type"].endswith("_delta")]


@pytest.mark.proves("S0-02", "S0-03")
async def test_sse_lasts_as_long_as_the_session_and_stream_answers_at_once(team: Stack) -> None:
    result = await transports(team)
    assert result.sse[-1]["type"] == "task_completed" and result.sse[-1]["output"] == "Listed."
    assert set(result.handle) >= {"session_id", "conversation_id", "stream_key"}
    again = await team.events(result.handle["session_id"], after=3)  # disconnect, and reconnect from a cursor
    assert again == result.stream[3:]


@pytest.mark.proves("S0-04", "S0-B03")
async def test_the_transports_differ_in_nothing_else(team: Stack) -> None:
    result = await transports(team)
    numbers = [event["seq"] for event in result.sse]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [event["type"] for event in comparable(result.sse)] == [event["type"] for event in comparable(result.stream)]
    assert [{**event, "seq": 0} for event in comparable(result.sse)] == [
        {**event, "seq": 0} for event in comparable(result.stream)
    ]
    own = {"transport", "kind", "usage"} | {
        name for name in result.records[0] if name.endswith(("_id", "_at", "_until")) or name == "deadline"
    }
    one, other = [{name: value for name, value in record.items() if name not in own} for record in result.records]
    assert one == other
    async with team.http.stream(
        "POST", "/conversations/run", json={"agent": "lead", "input": say("By default.")}
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")  # the run used sse, the fire used stream
        await answer.aread()


@pytest.mark.proves("S0-01", "S0-06", "S0-07")
async def test_four_kinds_of_session_execute_in_one_way(team: Stack) -> None:
    result, turns = await line(team), await transports(team)
    kinds = {}
    for session_id in (*(record["session_id"] for record in turns.records), result.s2.id):
        record = (await team.http.get(f"/sessions/{session_id}")).json()
        kinds[session_id] = record["kind"]
    assert list(kinds.values()) == ["sync_agent", "async_agent", "async_subagent"]
    types = {}
    for session_id in kinds:
        described = await team.session(session_id).describe()
        types[session_id] = described.workflow_type
        assert [event["type"] for event in await team.events(session_id)][:3] == [
            *("task_submitted", "task_started", "step_started")
        ]
    assert set(types.values()) == {"Session"}
    assert result.s2.workspace_id == result.s1.workspace_id


@pytest.mark.proves("S0-B42", "S0-19")
async def test_a_subagent_stays_the_agent_it_was(team: Stack) -> None:
    talk = await Talk.done(team, chain([async_delegate("ann", say("One."), agent="helper")], [gather("$0")]))
    [child] = await talk.children()
    tries = [
        async_delegate("ann", say("Two."), agent="scribe"),
        task("Go on.", agent="scribe", task_id=child.id),
    ]
    refused = await talk.results(await talk.say(chain(tries)))
    for text in refused:
        assert f"(session: {child.id}) is the agent 'helper', which cannot change" in text
        assert "Nothing was started" in text
    assert len(await talk.children()) == 1
    again = await talk.say(chain([async_delegate("ann", say("Two."), agent="helper")], [gather("$0")]))
    assert (await talk.ended(again)).status is Status.COMPLETED
    assert {row.thread_id for row in await talk.children()} == {child.thread_id}
