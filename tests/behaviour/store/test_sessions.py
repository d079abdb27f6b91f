"""Sessions end once, and an accepted cancel permits no other end."""

import asyncio

import pytest

from domain.events import ENDED, EventRow
from domain.sessions.session import Reason, RecordedStop, SessionRef, Status, StopRequest, Usage
from domain.sessions.writes import SessionEnding
from store import sessions
from store.database import Pool
from store.sessions import WrittenEnding
from tests.behaviour.store.conftest import Accept


def ending(ref: SessionRef, reason: Reason) -> SessionEnding:
    event = ENDED[reason.status](status=reason.status, reason=reason, partial=False, usage=Usage())
    return SessionEnding(
        ref=ref, reason=reason, output=f"ended by {reason}", version=9, events=[EventRow.of(ref, event)]
    )


async def end(pool: Pool, ref: SessionRef, reason: Reason) -> WrittenEnding:
    ended = await sessions.finish_session(pool, ending(ref, reason))
    assert isinstance(ended, WrittenEnding)
    return ended


STOP = RecordedStop(reason=Reason.CALLER_CANCEL, by="x")


async def cancel(pool: Pool, ref: SessionRef) -> bool:
    return await sessions.request_cancel(pool, ref, STOP)


async def test_a_session_ends_once(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    reasons = [Reason.GOAL_REACHED, Reason.ERROR, Reason.LOST, Reason.TTL]
    answers = await asyncio.gather(*(end(pool, ref, reason) for reason in reasons))
    assert len({answer.reason for answer in answers}) == 1
    row = await sessions.get(pool, "default", ref.session_id)
    assert row is not None and row.reason == answers[0].reason and row.output == f"ended by {row.reason}"
    assert not await cancel(pool, ref)


@pytest.mark.exactly_once
async def test_an_accepted_cancel_leaves_one_end(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    assert await cancel(pool, ref)
    assert not await cancel(pool, ref)  # recorded once
    noted = await sessions.finish_session(pool, ending(ref, Reason.GOAL_REACHED))
    assert isinstance(noted, StopRequest) and noted.reason is Reason.CALLER_CANCEL
    row = await sessions.get(pool, "default", ref.session_id)
    assert row is not None and not row.status.terminal
    assert (await end(pool, ref, Reason.CALLER_CANCEL)).status is Status.CANCELLED
