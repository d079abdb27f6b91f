"""Sessions of one conversation that are accepted at the same time wait for each other, in order."""

import asyncio
import re

import pytest

from domain.ids import new_id
from domain.sessions.new_session import PlacedSession
from domain.sessions.session import Reason
from domain.sessions.session_writes import Acceptance
from store import conversation_reads, mailbox, new_sessions, sessions, threads
from store.database import Pool
from store.new_sessions import Accepted
from tests.behaviour.store.conftest import Accept, new_session
from tests.behaviour.store.test_sessions import end
from tests.behaviour.store.test_trees import accepted, child_of, ref_of


async def queue(pool: Pool, session: PlacedSession) -> bool:
    accepted = await new_sessions.accept(pool, Acceptance(session=session, queue=True))
    return accepted.session is not None and not accepted.session.live


async def test_many_sessions_are_queued_at_once(pool: Pool, accept: Accept) -> None:
    root = await accept()
    assert all(await asyncio.gather(*(queue(pool, new_session(root.conversation_id)) for _ in range(40))))


@pytest.mark.proves("S0-B01")
async def test_queued_session_is_not_overtaken(pool: Pool, accept: Accept) -> None:
    """Between two turns no session is live, but the queued session still comes first."""
    root = await accept()
    first, late = new_session(root.conversation_id), new_session(root.conversation_id)
    assert await queue(pool, first) and await queue(pool, new_session(root.conversation_id))
    await pool.execute("UPDATE sessions SET live = false, status = 'completed' WHERE id = $1", root.session_id)
    refused = await new_sessions.accept(pool, Acceptance(session=late, in_order=True))
    assert refused.session is None and refused.busy == first.id
    await pool.execute("UPDATE sessions SET status = 'cancelled' WHERE conversation_id = $1", root.conversation_id)
    accepted = await new_sessions.accept(pool, Acceptance(session=late, in_order=True))
    assert accepted.session is not None and accepted.session.id == late.id


async def test_siblings_keep_the_order_of_their_calls(pool: Pool, accept: Accept) -> None:
    """Their ids derive from the calls and do not show the order."""
    root = await accept()
    names = [f"{9 - place}-{new_id()}" for place in range(5)]
    listed = [new_session(root.conversation_id).model_copy(update={"thread_id": name, "id": name}) for name in names]
    accepted = await new_sessions.accept_all(pool, [Acceptance(session=one) for one in listed])
    assert [one.session.id for one in accepted if one.session] == names
    branches = await conversation_reads.branches(pool, root.tenant, root.conversation_id, 10)
    assert [branch.session_id for branch in branches] == [root.session_id, *names]


@pytest.mark.exactly_once
async def test_mail_that_another_session_claimed_is_refused_and_nothing_is_written(pool: Pool, accept: Accept) -> None:
    root = await accept()
    one, other = child_of(root), child_of(root)
    await accepted(pool, one, other)
    mail = []
    for child in (one, other):
        mail.append((await end(pool, ref_of(child), Reason.GOAL_REACHED)).mail)
    await end(pool, root, Reason.GOAL_REACHED)

    async def claim(*messages: str | None) -> Accepted:
        session = new_session(root.conversation_id).model_copy(update={"thread_id": root.conversation_id})
        answer = await new_sessions.accept(pool, Acceptance(session=session, mail=[one for one in messages if one]))
        if answer.session is None:
            assert await sessions.get(pool, "default", session.id) is None
        else:
            await end(pool, session.ref, Reason.GOAL_REACHED)
        return answer

    first, both, second = await claim(mail[0]), await claim(*mail), await claim(mail[1])
    assert first.session is not None and second.session is not None
    assert both == Accepted(mail_taken=True)
    delivered = {
        one.message_id: one.delivered_to for one in await mailbox.by_ids(pool, "default", [m for m in mail if m])
    }
    assert delivered == {mail[0]: first.session.id, mail[1]: second.session.id}


async def test_nothing_begins_below_a_terminated_thread(pool: Pool, accept: Accept) -> None:
    """This includes a subagent with its own thread whose start waited for values."""
    root = await accept()
    child = new_session(root.conversation_id)
    child = child.model_copy(update={"thread_id": child.id})
    below = Acceptance(session=child, parent_thread_id=root.session_id)
    place = await threads.get(pool, "default", root.session_id)
    assert place is not None
    await threads.terminate(pool, "default", place, "test")
    refused = await new_sessions.accept(pool, below)
    assert refused.terminated and refused.session is None
    assert await threads.get(pool, "default", child.id) is None


async def test_marking_an_outcome_writes_no_index(pool: Pool) -> None:
    """A fire marks up to thousands of outcomes; each index on a column that it writes would be written as often."""
    found = await pool.fetch("SELECT indexdef FROM pg_indexes WHERE tablename = 'mailbox'")
    assert found and not [row for row in found if re.search("delivered_to|given_back_by", row["indexdef"])]
