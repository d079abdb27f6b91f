"""What the end of a session does to everything that belongs to it, for every way to end and every mode of delivery."""

import json
from typing import Any, Literal

import pytest

from domain.events import EventRow, MailboxUpdated
from domain.ids import new_id
from domain.sessions.input_request import RequestStatus
from domain.sessions.session import (
    CallState,
    DeliveryMode,
    Effect,
    Reason,
    RecordedStop,
    Scope,
    SessionRef,
    StopRequest,
)
from domain.sessions.writes import Acceptance, SessionEnding
from store import sessions, tool_calls
from store import sessions as endings
from store import sessions as new_sessions
from store.database import Pool
from store.sessions import WrittenEnding
from tests.behaviour.store.conftest import Accept
from tests.behaviour.store.test_requests import answer, ask
from tests.behaviour.store.test_sessions import ending
from tests.behaviour.store.test_tool_calls import claim, outcome
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


@pytest.mark.parametrize(
    ("reason", "output", "replied", "kind"),
    [
        (CANCELLED, None, False, "subagent_failed"),  # it said nothing
        (CANCELLED, None, True, "subagent_result"),
        (CANCELLED, "half", False, "subagent_result"),
        (FAILED, "half", True, "subagent_failed"),
    ],
)
async def test_cancelled_session_has_a_result_only_if_it_answered(
    pool: Pool, accept: Accept, reason: Reason, output: str | None, replied: bool, kind: str
) -> None:
    ref = await child(pool, await accept())
    await finish(pool, ref, reason, output=output, replied=replied)
    mail, *_ = await of_child(pool, ref)
    assert mail is not None and mail["source_type"] == kind


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


@pytest.mark.parametrize(("output", "replied"), [(None, False), (None, True), ("an answer", False)])
async def test_ended_session_returns_what_it_did_not_use(
    pool: Pool, accept: Accept, output: str | None, replied: bool
) -> None:
    root = await accept()
    outcomes = {name: await child(pool, root, blocking=name == "blocking") for name in ("own", "blocking", "other")}
    ids = {name: (await finish(pool, ref, DONE)).mail for name, ref in outcomes.items()}
    other = new_id()
    for name, by in (("own", root.session_id), ("blocking", root.session_id), ("other", other)):
        await pool.execute("UPDATE mailbox SET delivered_to = $2 WHERE message_id = $1", ids[name], by)
    silent, loud, foreign = new_id(), new_id(), new_id()
    for message, wake, by in ((silent, False, root.session_id), (loud, True, root.session_id), (foreign, False, other)):
        await pool.execute(
            """INSERT INTO inbox (tenant, id, conversation_id, thread_id, kind, author, parts, wake, taken_by, entered)
               VALUES ('default', $1, $2, $2, 'message', 'ann', '[]', $3, $4, true)""",
            message,
            root.conversation_id,
            wake,
            by,
        )
    ended = [await finish(pool, root, FAILED, output=output, replied=replied) for _ in range(2)]
    commits = output is not None or replied
    assert [one.given_back for one in ended] == [[] if commits else [ids["own"]]] * 2
    mail = await pool.fetch(
        "SELECT message_id, delivered_to FROM mailbox WHERE message_id = ANY($1)", list(ids.values())
    )
    holders = {row["message_id"]: row["delivered_to"] for row in mail}
    assert holders == {
        ids["own"]: root.session_id if commits else None,
        ids["blocking"]: root.session_id,
        ids["other"]: other,
    }
    await pool.execute("UPDATE mailbox SET delivered_to = $2 WHERE message_id = $1", ids["own"], other)
    assert (await finish(pool, root, FAILED, output=output, replied=replied)).given_back == []  # another session has it
    rows = await pool.fetch("SELECT id, taken_by FROM inbox WHERE id = ANY($1)", [silent, loud, foreign])
    taken = {row["id"]: row["taken_by"] for row in rows}
    assert taken == {silent: root.session_id if commits else None, loud: root.session_id, foreign: other}


@pytest.mark.parametrize("reason", [DONE, CANCELLED, Reason.INPUT_TIMEOUT])
async def test_open_requests_and_calls_end_with_their_session(pool: Pool, accept: Accept, reason: Reason) -> None:
    ref, neighbour = await accept(), await accept()
    waiting, answered = new_id(), new_id()
    for request in (waiting, answered):
        await ask(pool, ref, request)
    assert await answer(pool, ref, answered) is None
    foreign = new_id()
    await ask(pool, neighbour, foreign)
    nodes = {effect: new_id() for effect in Effect}
    for effect, node in nodes.items():
        await tool_calls.claim(pool, claim(ref, node, 1, effect))
    await pool.execute(
        "UPDATE tool_calls SET kind = 'command' WHERE session_id = $1 AND effect = 'once'", ref.session_id
    )
    done, beside = new_id(), new_id()
    await tool_calls.claim(pool, claim(ref, done, 1, Effect.ONCE))
    await tool_calls.commit(pool, outcome(ref, done, 1, "done", Effect.ONCE))
    await tool_calls.claim(pool, claim(neighbour, beside, 1, Effect.ONCE))
    await finish(pool, ref, reason)
    rows = await pool.fetch("SELECT id, status FROM input_requests WHERE id = ANY($1)", [waiting, answered, foreign])
    closed = RequestStatus.EXPIRED if reason is Reason.INPUT_TIMEOUT else RequestStatus.WITHDRAWN
    assert {row["id"]: row["status"] for row in rows} == {
        waiting: closed,
        answered: RequestStatus.ANSWERED,
        foreign: RequestStatus.OPEN,
    }
    calls = await pool.fetch(
        "SELECT node, state, result, ended_at FROM tool_calls WHERE session_id = $1", ref.session_id
    )
    states = {row["node"]: row["state"] for row in calls}
    assert states == {
        nodes[Effect.READ]: CallState.CANCELLED,
        nodes[Effect.IDEMPOTENT]: CallState.CANCELLED,
        nodes[Effect.ONCE]: CallState.UNKNOWN,
        done: CallState.OK,
    }
    assert all(row["ended_at"] and row["result"] for row in calls)
    assert await pool.fetchval("SELECT state FROM tool_calls WHERE node = $1", beside) == "started"
    returned = await pool.fetch(
        "SELECT data FROM events WHERE session_id = $1 AND type = 'tool_returned'", ref.session_id
    )
    assert sorted(json.loads(row["data"])["state"] for row in returned) == ["cancelled", "cancelled", "unknown"]
    audited = "SELECT count(*) FROM audit WHERE action = 'tool_ended' AND session_id = $1"
    assert await pool.fetchval(audited, ref.session_id) == 1  # of the call that changed something


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


async def test_content_is_kept_for_the_retention_of_its_session(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    await pool.execute("UPDATE sessions SET retention_ms = 86400000 WHERE id = $1", ref.session_id)
    await finish(pool, ref, DONE)
    left = "SELECT keep_until - ended_at = interval '1 day' FROM sessions WHERE id = $1"
    assert await pool.fetchval(left, ref.session_id) is True
