"""What the end of a session does to everything that belongs to it, for every way to end and every mode of delivery."""

from typing import Any, Literal

import pytest

from domain.events import EventRow, MailboxUpdated
from domain.sessions.session import (
    DeliveryMode,
    Reason,
    RecordedStop,
    Scope,
    SessionRef,
    StopRequest,
)
from domain.sessions.writes import Acceptance, SessionEnding
from store import sessions
from store import sessions as endings
from store import sessions as new_sessions
from store.database import Pool
from store.sessions import WrittenEnding
from tests.behaviour.store.conftest import Accept
from tests.behaviour.store.test_sessions import ending
from tests.behaviour.store.test_trees import child_of, ref_of

HOLD, WAKE, EXPLICIT, REPORT = DeliveryMode.HOLD, DeliveryMode.WAKE, DeliveryMode.EXPLICIT, DeliveryMode.REPORT
DONE, FAILED, CANCELLED = Reason.GOAL_REACHED, Reason.ERROR, Reason.CALLER_CANCEL


async def child(pool: Pool, spawner: SessionRef, delivery: DeliveryMode = HOLD, blocking: bool = False) -> SessionRef:
    wanted = child_of(spawner)
    placed = wanted.session.model_copy(update={"delivery": delivery, "blocking": blocking})
    [accepted] = await new_sessions.accept_all(pool, [Acceptance(**{**dict(wanted), "session": placed})])
    assert accepted.session is not None
    return ref_of(wanted)


async def finish(pool: Pool, ref: SessionRef, reason: Reason, **more: Any) -> WrittenEnding:
    """End a session; with `mailbox_updated`, which only a change of the mailbox emits."""
    whole = ending(ref, reason)
    events = [EventRow.of(ref, MailboxUpdated()), *whole.events]
    ended = await endings.finish_session(pool, whole.model_copy(update={"events": events, **more}))
    assert isinstance(ended, WrittenEnding)
    return ended


async def of_child(pool: Pool, ref: SessionRef) -> tuple[dict[str, Any] | None, bool, bool]:
    """The mailbox row of a session's outcome, whether it wakes its spawner, and whether the mailbox is announced."""
    mail = await pool.fetchrow("SELECT * FROM mailbox WHERE source_session_id = $1", ref.session_id)
    wakes = await pool.fetchval("SELECT count(*) FROM inbox WHERE source = $1", ref.session_id)
    announced = "SELECT count(*) FROM events WHERE session_id = $1 AND type = 'mailbox_updated'"
    return dict(mail) if mail else None, wakes == 1, await pool.fetchval(announced, ref.session_id) == 1


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("reason", [DONE, FAILED, CANCELLED])
@pytest.mark.parametrize("delivery", list(DeliveryMode))
async def test_outcome_is_delivered_as_its_mode_says(
    pool: Pool, accept: Accept, delivery: DeliveryMode, reason: Reason, blocking: bool
) -> None:
    root = await accept()
    ref = await child(pool, root, delivery, blocking)
    ended = [await finish(pool, ref, reason) for _ in range(2)]  # the repetition writes and answers the same
    mail, wakes, announced = await of_child(pool, ref)
    written = delivery in (HOLD, WAKE) or (delivery is REPORT and reason is FAILED)
    assert (mail is not None, ended[0].mail is not None) == (written, written) and ended[0] == ended[1]
    assert wakes is (written and delivery is not HOLD and not blocking)
    assert announced is (written and not blocking)
    if mail is not None:
        assert mail["source_type"] == ("subagent_failed" if reason is FAILED else "subagent_result")
        assert mail["delivered_to"] == (root.session_id if blocking else None)
        assert mail["thread_id"] == root.conversation_id and mail["given_back_by"] is None


@pytest.mark.parametrize("delivery", [HOLD, WAKE, REPORT])
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("scope", [None, Scope.TREE])
async def test_outcome_waits_in_a_cancelled_tree(
    pool: Pool, accept: Accept, scope: Literal[Scope.TREE] | None, deep: bool, delivery: DeliveryMode
) -> None:
    root = await accept()
    spawner = await child(pool, root) if deep else root
    ref = await child(pool, spawner, delivery)
    blocking = await child(pool, spawner, delivery, blocking=True)
    await sessions.request_cancel(pool, spawner, RecordedStop(reason=CANCELLED, by="x", scope=scope))
    held = scope is Scope.TREE and delivery is not HOLD
    assert (await finish(pool, ref, FAILED)).held is held
    assert (await finish(pool, blocking, FAILED)).held is False
    mail, wakes, _ = await of_child(pool, ref)
    assert mail is not None and wakes is (delivery is not HOLD and not held)
    # a thread below the root gets it back with its next task; of the root, the next message takes it
    assert mail["given_back_by"] == (ref.session_id if held and deep else None)


async def test_end_of_a_session_that_committed_more_or_was_cancelled_is_not_written(pool: Pool, accept: Accept) -> None:
    for seen, moved in ((3, True), (5, True), (4, False), (None, False)):
        ref = await accept()
        await pool.execute("UPDATE sessions SET version = 4 WHERE id = $1", ref.session_id)
        written = await endings.finish_session(pool, ending(ref, DONE).model_copy(update={"seen": seen}))
        assert (written is None) is moved, seen
    for reason in Reason:
        ref = await accept()
        await sessions.request_cancel(pool, ref, RecordedStop(reason=CANCELLED, by="x"))
        said = await endings.finish_session(pool, SessionEnding(ref=ref, reason=reason, version=1))
        assert isinstance(said, WrittenEnding if reason.status == "cancelled" else StopRequest), reason
