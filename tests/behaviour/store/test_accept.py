"""Sessions of one conversation that are accepted at the same time wait for each other, in order."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from domain.ids import new_id
from domain.sessions.new_session import PlacedSession
from domain.sessions.session import Reason, SessionRef
from domain.sessions.writes import Acceptance, IdempotencyRecord, NewMessage, QueuedBegin, ThreadMessage
from store import conversations, mailbox, resets, sessions
from store.database import Pool
from store.sessions import Accepted, SessionRow
from tests.behaviour.store.conftest import Accept, new_session
from tests.behaviour.store.test_sessions import STOP, end, ending
from tests.behaviour.store.test_trees import accepted, child_of, ref_of


async def queue(pool: Pool, session: PlacedSession) -> bool:
    accepted = await sessions.accept(pool, Acceptance(session=session, queue=True))
    return accepted.session is not None and not accepted.session.live


@pytest.mark.proves("S0-B01")
async def test_queued_session_is_not_overtaken(pool: Pool, accept: Accept) -> None:
    """Between two turns no session is live, but the queued session still comes first."""
    root = await accept()
    first, late = new_session(root.conversation_id), new_session(root.conversation_id)
    assert await queue(pool, first) and await queue(pool, new_session(root.conversation_id))
    refused = await sessions.accept(pool, Acceptance(session=late, in_order=True))
    assert refused.session is None and refused.busy == root.session_id  # the live one, before those that wait
    await pool.execute("UPDATE sessions SET live = false, status = 'completed' WHERE id = $1", root.session_id)
    refused = await sessions.accept(pool, Acceptance(session=late, in_order=True))
    assert refused.session is None and refused.busy == first.id
    behind = Acceptance(session=new_session(root.conversation_id), in_order=True, queue=True)
    assert (await sessions.accept(pool, behind)).session is not None  # it overtakes nobody
    await pool.execute("UPDATE sessions SET status = 'cancelled' WHERE conversation_id = $1", root.conversation_id)
    accepted = await sessions.accept(pool, Acceptance(session=late, in_order=True))
    assert accepted.session is not None and accepted.session.id == late.id


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
        answer = await sessions.accept(pool, Acceptance(session=session, mail=[one for one in messages if one]))
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


async def answered(pool: Pool, ref: SessionRef, head: str) -> None:
    """End a session with an answer whose last message is `head`."""
    await sessions.finish_session(pool, ending(ref, Reason.GOAL_REACHED).model_copy(update={"head": head}))


async def begun(pool: Pool, ref: SessionRef, *take: str) -> SessionRow | str:
    """Let a queued session begin; the row, or the id of the session that is live."""
    busy = await sessions.begin_queued(pool, QueuedBegin(tenant=ref.tenant, session_id=ref.session_id, take=[*take]))
    row = await sessions.get(pool, ref.tenant, ref.session_id)
    assert row is not None
    return busy or row


def in_thread(root: SessionRef, **more: Any) -> PlacedSession:
    return new_session(root.conversation_id, root.tenant).model_copy(update={"thread_id": root.conversation_id, **more})


async def thread_message(pool: Pool, root: SessionRef, **more: Any) -> str:
    message = ThreadMessage(
        id=new_id(), conversation_id=root.conversation_id, thread_id=root.conversation_id, text="hello", **more
    )
    await conversations.add_message(pool, root.tenant, message)
    return message.id


async def taken_by(pool: Pool, message_id: str) -> str | None:
    found: str | None = await pool.fetchval("SELECT taken_by FROM inbox WHERE id = $1", message_id)
    return found


@pytest.mark.parametrize("queued", [True, False])
async def test_next_session_of_a_thread_begins_where_the_last_answer_ended(
    pool: Pool, accept: Accept, queued: bool
) -> None:
    """Whether it waited or not: after sessions without an answer, with the silent messages that nobody has read."""
    root = await accept()
    silent = await thread_message(pool, root, wake=False)
    loud, read = await thread_message(pool, root), await thread_message(pool, root, wake=False, taken_by="another")
    elsewhere = ThreadMessage(
        id=new_id(), conversation_id=root.conversation_id, thread_id=new_id(), text="to another thread", wake=False
    )
    await conversations.add_message(pool, "default", elsewhere)
    session, opening = in_thread(root), new_id()
    message = NewMessage(id=opening, parts="[]")
    if queued:
        assert (await sessions.accept(pool, Acceptance(session=session, queue=True, inbox=[message]))).session
        assert await begun(pool, session.ref) == root.session_id  # another one is live
        assert await taken_by(pool, silent) is None
    await answered(pool, root, "head of the answer")
    failed = in_thread(root)
    assert (await sessions.accept(pool, Acceptance(session=failed))).session is not None
    assert await taken_by(pool, silent) == failed.id
    ended = ending(failed.ref, Reason.ERROR).model_copy(update={"output": None, "head": "of the failed one"})
    await sessions.finish_session(pool, ended)
    assert await taken_by(pool, silent) is None  # it was not answered, so that the next one reads it
    if queued:
        row = await begun(pool, session.ref)
    else:
        accepted = await sessions.accept(pool, Acceptance(session=session, inbox=[message]))
        row = accepted.session or ""
    assert isinstance(row, SessionRow)
    assert (row.live, row.parent_session_id) == (True, root.session_id)
    assert (row.base_head, row.head) == ("head of the answer", "head of the answer")
    assert row.inbox == [silent, opening]
    assert [await taken_by(pool, one) for one in (silent, loud, read, elsewhere.id, opening)] == [
        *(session.id, None, "another", None),
        session.id,
    ]
    assert await begun(pool, session.ref) == await sessions.get(
        pool, "default", session.id
    )  # a repetition changes nothing


@pytest.mark.parametrize("queued", [True, False])
async def test_next_session_after_a_reset_begins_with_an_empty_context(
    pool: Pool, accept: Accept, queued: bool
) -> None:
    """Only the main thread is reset; a subagent keeps its context."""
    for main in (True, False):
        root = await accept()
        thread = root.conversation_id if main else new_id()
        before = root if main else in_thread(root, thread_id=thread).ref
        if not main:
            await sessions.accept(pool, Acceptance(session=in_thread(root, thread_id=thread, id=before.session_id)))
        await answered(pool, before, "before the reset")
        assert await resets.reset(pool, "default", root.conversation_id, STOP)
        session = in_thread(root, thread_id=thread)
        accepted = await sessions.accept(pool, Acceptance(session=session, queue=queued))
        row = await begun(pool, session.ref) if queued else accepted.session
        assert isinstance(row, SessionRow) and row.generation == 1
        expected = (None, None) if main else (before.session_id, "before the reset")
        assert (row.parent_session_id, row.base_head) == expected, main


async def test_time_of_a_queued_session_begins_when_it_leaves_the_queue(pool: Pool, accept: Accept) -> None:
    root = await accept()
    now = datetime.now(UTC)
    session = in_thread(root, deadline=now + timedelta(seconds=60))
    await sessions.accept(pool, Acceptance(session=session, queue=True))
    await pool.execute(
        """UPDATE sessions SET created_at = created_at - interval '1 hour', deadline = deadline - interval '1 hour'
            WHERE id = $1""",
        session.id,
    )
    await end(pool, root, Reason.GOAL_REACHED)
    row = await begun(pool, session.ref)
    assert isinstance(row, SessionRow)
    assert timedelta(seconds=50) < row.deadline - datetime.now(UTC) <= timedelta(seconds=61)


async def test_refused_submission_leaves_no_record_and_one_whose_answer_was_lost_is_returned(pool: Pool) -> None:
    refused, sent = (
        IdempotencyRecord(key="key", digest=digest, status=202, response='{"task": 1}') for digest in ("a", "b")
    )
    assert (await sessions.accept(pool, Acceptance(session=new_session(new_id()), idempotency=refused))).unknown
    first = await sessions.accept(pool, Acceptance(session=new_session(), idempotency=sent))
    assert first.session is not None
    elsewhere = Acceptance(session=new_session(tenant=new_id()), idempotency=refused)
    assert (await sessions.accept(pool, elsewhere)).session is not None  # a key is the tenant's
    same = await sessions.accept(pool, Acceptance(session=new_session().model_copy(update={"id": first.session.id})))
    assert same.session is not None and same.session.created_at == first.session.created_at
