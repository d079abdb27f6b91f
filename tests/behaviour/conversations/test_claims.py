"""Reading outcomes: one claim for all gathered outcomes, and events about the outcomes that still wait."""

import pytest

from domain.sessions.writes import ThreadMessage
from store import conversation_state, conversations
from tests.behaviour.conversations.talk import Talk, async_task, chain, gather, say
from tests.support.stack import Stack, of_type

pytestmark = pytest.mark.exactly_once


@pytest.mark.proves("S0-B44")
async def test_watchers_see_the_mailbox_become_empty_when_all_are_gathered(team: Stack) -> None:
    parts = [async_task(say(f"Part {n}.")) for n in range(3)]
    talk = await Talk.done(team, chain(parts, [gather("$0", "$1", "$2")]))
    await talk.rest()
    assert [message.delivered_to for message in await talk.mail()] == [talk.id] * 3
    [reported] = of_type(await team.events(talk.id), "mailbox_updated")  # one event: all three were claimed together
    assert reported["pending_count"] == 0


async def test_terminated_conversation_is_not_reopened_for_waiting_outcomes(team: Stack) -> None:
    talk = await Talk.done(team, say())
    await conversations.add_message(
        team.pool,
        "default",
        ThreadMessage(id=f"{talk.id}x", conversation_id=talk.id, thread_id=talk.id, text="Too late."),
    )
    assert ("default", talk.id) in await conversation_state.find_stranded(team.pool, -1.0)
    await conversations.terminate(team.pool, "default", talk.id)
    assert ("default", talk.id) not in await conversation_state.find_stranded(team.pool, -1.0)
