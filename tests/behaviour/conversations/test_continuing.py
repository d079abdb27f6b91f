"""Continuing with another agent: this is possible on the main thread, but not on the thread of a subagent."""

import pytest

from domain.sessions.session import Status
from tests.behaviour.conversations.talk import Talk, async_delegate, chain, gather, say, task
from tests.support.stack import Stack


@pytest.mark.proves("S0-16", "S0-B04")
async def test_the_main_thread_may_change_its_agent(team: Stack) -> None:
    talk = await Talk.done(team, say("Hello."), "lead")
    second = await talk.ended(await talk.say(say("Here is another."), agent="boss"))
    third = await talk.ended(await talk.say(say("And on.")))
    assert [second.agent, third.agent] == ["boss", "boss"]  # a turn without an agent uses the latest one
    assert (second.parent_session_id, third.parent_session_id) == (talk.id, second.id)
    shown = await talk.shown("/turns")
    assert [turn["agent"] for turn in shown["items"]] == ["lead", "boss", "boss"]


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
