"""Transactions on the same rows lock them in one order: none of them ends in a deadlock."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from domain.events import EventRow, MessageReceived, ModelRetry, ToolCalled, ToolReturned
from domain.ids import new_id
from domain.notifications import AttemptRecord, DeliveryStatus
from domain.sessions.input_request import RequestStatus
from domain.sessions.session import CallState, Effect, EffectKind, Reason, SessionRef, Status
from domain.sessions.writes import (
    Acceptance,
    NewBudget,
)
from store import events, input_requests, mailbox, messages, notifications, resets, sessions, tool_calls
from store.database import Pool
from store.runs import SessionEnded
from store.sessions import Accepted
from tests.behaviour.store.conftest import Accept, new_session
from tests.behaviour.store.test_deliveries import DONE, found, subscribed
from tests.behaviour.store.test_messages import begin, step
from tests.behaviour.store.test_requests import answer, ask, given, settle
from tests.behaviour.store.test_sessions import cancel, end, ending
from tests.behaviour.store.test_tool_calls import claim, outcome
from tests.behaviour.store.test_trees import accepted, child_of, ref_of
from tests.support.stack import eventually

pytestmark = pytest.mark.exactly_once


class Held:
    """Holds locked rows; operations that need them are started in a known order."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.begun: list[asyncio.Task[Any]] = []

    async def begin(self, operation: Coroutine[Any, Any, Any]) -> None:
        """Start the operation and wait until its connection waits for a lock."""
        self.begun.append(asyncio.create_task(operation))

        async def waits() -> bool:
            waiting = await self._pool.fetchval(
                """SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock'"""
            )
            return bool(waiting >= len(self.begun))

        await eventually(waits, seconds=10, pause=0.02, what="it waits")


@asynccontextmanager
async def held(pool: Pool, table: str, where: str) -> AsyncIterator[Held]:
    async with pool.acquire() as connection, connection.transaction():
        assert await connection.fetch(f"SELECT 1 FROM {table} WHERE {where} FOR UPDATE")
        others = Held(pool)
        yield others
    await asyncio.gather(*others.begun, return_exceptions=True)


async def opened(pool: Pool, ref: SessionRef) -> str:
    request_id = new_id()
    assert await ask(pool, ref, request_id)
    return request_id


async def test_message_to_an_ending_session_does_not_deadlock(pool: Pool, accept: Accept) -> None:
    first = new_session()
    ref, second = first.ref, Acceptance(session=new_session(first.id), budget=NewBudget(max_steps=9))
    await sessions.accept(pool, Acceptance(session=first, budget=NewBudget(max_steps=9)))
    async with held(pool, "budgets", f"conversation_id = '{ref.conversation_id}'") as others:
        await others.begin(sessions.accept(pool, second))  # it holds the lock of the conversation
        await others.begin(sessions.finish_session(pool, ending(ref, Reason.GOAL_REACHED)))
    refused, ended = [task.result() for task in others.begun]
    assert refused == Accepted(busy=ref.session_id) and ended.status is Status.COMPLETED
    assert (await sessions.accept(pool, second)).session is not None


async def test_session_that_an_earlier_attempt_accepts_meanwhile_is_not_busy_with_itself(
    pool: Pool, accept: Accept
) -> None:
    """The worker of the first attempt died, but the database still commits what it had sent."""
    ref = await accept()
    await end(pool, ref, Reason.GOAL_REACHED)
    second = Acceptance(session=new_session(ref.conversation_id))
    async with held(pool, "conversations", f"id = '{ref.conversation_id}'") as others:
        for _ in range(2):
            await others.begin(sessions.accept(pool, second))
    first, again = [task.result().session for task in others.begun]
    assert first is not None and again is not None and (first.id, again.live) == (again.id, True)


async def test_request_expiring_in_a_cancelled_session_does_not_deadlock(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    request_id = await opened(pool, ref)
    async with held(pool, "audit_heads", f"chain = '{ref.conversation_id}'") as others:
        await others.begin(settle(pool, ref, request_id))
        await others.begin(cancel(pool, ref))
    settled, cancelled = [task.result() for task in others.begun]
    assert settled.status is RequestStatus.EXPIRED and cancelled


async def test_answers_given_together_and_one_by_one_do_not_deadlock(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    one, two = await opened(pool, ref), await opened(pool, ref)
    async with held(pool, "audit_heads", f"chain = '{ref.conversation_id}'") as others:
        await others.begin(input_requests.answer_all(pool, ref.tenant, [given(ref, one), given(ref, two)], []))
        await others.begin(answer(pool, ref, two))
    assert [task.result() for task in others.begun] == [None, RequestStatus.ANSWERED]


async def test_results_and_claims_of_two_calls_do_not_deadlock(pool: Pool, accept: Accept) -> None:
    ref, node = await accept(), new_id()
    returned = EventRow.of(ref, ToolReturned(tool="bash", state=CallState.OK, preview=""))
    called = [EventRow.of(ref, ToolCalled(tool="bash", args=""))]
    assert (await tool_calls.claim(pool, claim(ref, node, 1, Effect.ONCE, kind=EffectKind.COMMAND, called=called))).go
    done = outcome(ref, node, 1, "done", Effect.ONCE).model_copy(update={"events": [returned]})
    async with held(pool, "audit_heads", f"chain = '{ref.conversation_id}'") as others:
        await others.begin(tool_calls.commit(pool, done))
        other = claim(ref, new_id(), 1, Effect.ONCE, kind=EffectKind.COMMAND, called=called)
        await others.begin(tool_calls.claim(pool, other))
    first, second = [task.result() for task in others.begun]
    assert first and second.go


async def test_outcome_read_in_two_ways_does_not_deadlock(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    child = child_of(ref)
    assert await accepted(pool, child) == [True]
    mail = (await end(pool, ref_of(child), Reason.GOAL_REACHED)).mail
    assert mail is not None
    async with held(pool, "inbox", f"id = '{mail}'") as others:
        await others.begin(messages.commit_step(pool, step(ref, new_id(), 2, "x", take=[mail])))
        await others.begin(mailbox.deliver(pool, ref.tenant, [mail], ref.session_id))
    for task in others.begun:
        task.result()


async def test_call_repeated_beside_another_does_not_deadlock(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    await messages.commit_step(pool, step(ref, new_id(), 5, "x"))
    received = [EventRow.of(ref, MessageReceived(kind="user", author="x", preview="x"))]
    retry = ModelRetry(step=1, attempt=1, model="m", reason="overloaded", next_at=datetime.now(UTC))
    await messages.note_retry(pool, EventRow.of(ref, retry))
    async with held(pool, "sessions", f"id = '{ref.session_id}'") as others:
        await others.begin(messages.commit_step(pool, step(ref, new_id(), 7, "y")))
        await others.begin(messages.begin_step(pool, begin(ref, new_id(), 2, events=received)))
    for task in others.begun:
        task.result()


async def test_subscription_removed_during_its_delivery_does_not_deadlock(pool: Pool, accept: Accept) -> None:
    mine = await subscribed(pool)
    ref = await accept()
    await sessions.finish_session(
        pool, ending(ref, Reason.GOAL_REACHED).model_copy(update={"events": [EventRow.of(ref, DONE)]})
    )
    [one] = await found(pool, mine)
    tried = AttemptRecord(tenant="default", id=one.id, attempt="1", status=DeliveryStatus.DELIVERED)
    async with held(pool, "subscriptions", f"id = '{mine}'") as others:
        await others.begin(notifications.remove_subscription(pool, "default", mine, ""))
        await others.begin(notifications.record_attempt(pool, tried))
    removed, status = [task.result() for task in others.begun]
    assert removed and status == "failed"


async def test_lost_context_beside_an_event_of_interest_does_not_deadlock(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    received = given(ref, "x").events
    await events.append(pool, new_id(), received)  # so that the tenant has a counter
    async with held(pool, "event_counters", f"tenant = '{ref.tenant}' AND scope = 't/'") as others:
        await others.begin(resets.begin_anew(pool, ref, "lost"))
        await others.begin(events.append(pool, new_id(), received))
    for task in others.begun:
        task.result()


async def test_lost_context_beside_the_end_of_a_session_behind_it_does_not_deadlock(pool: Pool, accept: Accept) -> None:
    first = new_session()
    queued = new_session(first.id)
    for one in (first, queued):
        await sessions.accept(pool, Acceptance(session=one, queue=one is queued))
    async with held(pool, "conversations", f"id = '{first.id}'") as others:
        await others.begin(resets.begin_anew(pool, first.ref, "lost"))
        await others.begin(sessions.finish_session(pool, ending(queued.ref, Reason.CALLER_CANCEL)))
    for task in others.begun:
        task.result()


async def test_call_claimed_while_its_session_ends_is_closed_by_the_end(pool: Pool, accept: Accept) -> None:
    """A claim that has read the session as running delays its end: nothing runs in a session that has ended."""
    first, node = new_session(), new_id()
    await sessions.accept(pool, Acceptance(session=first, budget=NewBudget(max_steps=9)))
    async with held(pool, "budgets", f"conversation_id = '{first.id}'") as others:
        await others.begin(tool_calls.claim(pool, claim(first.ref, node, 1, Effect.ONCE, run="run")))
        await others.begin(sessions.finish_session(pool, ending(first.ref, Reason.TTL)))
    claimed, ended = [task.result() for task in others.begun]
    assert claimed.go and ended.status is Status.FAILED
    assert await pool.fetchval("SELECT state FROM tool_calls WHERE node = $1", node) == CallState.UNKNOWN
    with pytest.raises(SessionEnded):
        await tool_calls.claim(pool, claim(first.ref, new_id(), 1, Effect.ONCE, run="run"))


async def test_results_that_show_progress_beside_the_end_do_not_deadlock(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    nodes, returned = [new_id(), new_id()], EventRow.of(ref, ToolReturned(tool="bash", state=CallState.OK, preview=""))
    for node in nodes:
        assert (await tool_calls.claim(pool, claim(ref, node, 1, Effect.ONCE))).go
    done = {"progress": "half", "events": [returned]}
    one, two = [outcome(ref, node, 1, "done", Effect.ONCE).model_copy(update=done) for node in nodes]
    await events.append(pool, new_id(), [returned])  # so that the session has a counter
    async with held(pool, "event_counters", f"scope = 's/{ref.session_id}'") as others:
        await others.begin(tool_calls.commit(pool, one))  # it has written the session's row
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT 1 FROM tool_calls WHERE node = $1 FOR UPDATE", nodes[1])
            await others.begin(tool_calls.commit(pool, two))
            await others.begin(sessions.finish_session(pool, ending(ref, Reason.TTL)))
        await asyncio.sleep(0.1)  # the second result continues
    first, second, ended = [task.result() for task in others.begun]
    assert first and second and ended.status is Status.FAILED
