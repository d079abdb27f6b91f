"""Input requests: opened once and within a number, answered once, and settled for their session."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from domain.events import EventRow, InputExpired, InputReceived, InputRequired
from domain.ids import new_id
from domain.sessions.input_request import InputRequest, OnExpiry, RequestKind, RequestStatus
from domain.sessions.session import SessionRef, Status
from domain.sessions.writes import NewRequest, RequestAnswer, RequestOpening, RequestSettlement
from store import input_requests, sessions
from store.database import Pool
from store.input_requests import OpenedRow
from tests.behaviour.store.conftest import Accept

FAR = datetime(2100, 1, 1, tzinfo=UTC)
QUESTION, APPROVAL, EVENT = RequestKind.CLARIFICATION, RequestKind.TOOL_APPROVAL, RequestKind.EXTERNAL_EVENT


async def ask(
    pool: Pool, ref: SessionRef, request_id: str, kind: RequestKind = QUESTION, **more: Any
) -> OpenedRow | None:
    request = NewRequest(
        id=request_id,
        session_id=ref.session_id,
        conversation_id=ref.conversation_id,
        kind=kind,
        question=f"about {request_id}",
        deadline=FAR,
        on_expiry=OnExpiry.DENY,
        event_key=request_id if kind is EVENT else None,
    )
    required = InputRequired(request_id=request_id, kind=kind, question="?", deadline=FAR)
    opening = RequestOpening(tenant=ref.tenant, request=request, events=[EventRow.of(ref, required)], **more)
    return await input_requests.open_request(pool, opening)


def given(ref: SessionRef, request_id: str) -> RequestAnswer:
    received = EventRow.of(ref, InputReceived(request_id=request_id, kind=QUESTION, by="ann"))
    return RequestAnswer(
        tenant=ref.tenant, id=request_id, session_id=ref.session_id, answer='"yes"', by="ann", events=[received]
    )


async def answer(pool: Pool, ref: SessionRef, request_id: str) -> RequestStatus | None:
    """Answer a request; the status of one that is not open."""
    return await input_requests.answer(pool, given(ref, request_id))


async def settle(pool: Pool, ref: SessionRef, request_id: str, **more: Any) -> InputRequest:
    expired = [EventRow.of(ref, InputExpired(request_id=request_id, kind=QUESTION))]
    settlement = RequestSettlement(tenant=ref.tenant, id=request_id, expired=expired, **more)
    return await input_requests.settle(pool, settlement)


async def shown(pool: Pool, ref: SessionRef) -> Status:
    row = await sessions.get(pool, ref.tenant, ref.session_id)
    assert row is not None
    return row.status


async def emitted(pool: Pool, ref: SessionRef) -> list[str]:
    rows = await pool.fetch("SELECT type FROM events WHERE session_id = $1 AND seq > 1 ORDER BY seq", ref.session_id)
    return [row["type"] for row in rows]


async def test_session_opens_as_many_requests_of_a_kind_as_it_may(pool: Pool, accept: Accept) -> None:
    """A repetition of the last one is answered like the first time: its result was lost, or its worker died."""
    ref, other = await accept(), await accept()
    first, last, late = new_id(), new_id(), new_id()
    assert await ask(pool, ref, first, most=2) and await ask(pool, ref, last, most=2)
    for request_id in (last, first):
        again = await ask(pool, ref, request_id, most=2)
        assert again is not None and (again.status, again.deadline) == (RequestStatus.OPEN, FAR)
    assert await emitted(pool, ref) == ["input_required"] * 2  # each is shown once
    assert await ask(pool, ref, late, most=2) is None
    assert await pool.fetchval("SELECT count(*) FROM input_requests WHERE id = $1", late) == 0
    assert await ask(pool, ref, new_id(), APPROVAL, most=2)  # each kind has its own number
    assert await ask(pool, other, new_id(), most=1)  # nor do those of another session count
    assert await answer(pool, ref, last) is None
    again = await ask(pool, ref, last, most=2)
    assert again is not None and again.status is RequestStatus.ANSWERED
    assert await ask(pool, ref, late)  # there need not be a number


@pytest.mark.parametrize(
    ("kind", "status"),
    [(QUESTION, Status.INPUT_REQUIRED), (APPROVAL, Status.INPUT_REQUIRED), (EVENT, Status.SUBMITTED)],
)
async def test_session_is_shown_as_waiting_until_its_last_request_is_settled(
    pool: Pool, accept: Accept, kind: RequestKind, status: Status
) -> None:
    """Nobody has to act on one that waits for an event, and people need not know that an event did not happen."""
    ref, other = await accept(), await accept()
    mine, second, theirs = new_id(), new_id(), new_id()
    await ask(pool, ref, mine, kind)
    assert await shown(pool, ref) is status
    row = await sessions.get(pool, "default", ref.session_id)
    assert row is not None and row.progress == f"about {mine}"
    await ask(pool, ref, second)
    row = await sessions.get(pool, "default", ref.session_id)
    assert row is not None and row.progress == f"about {second if kind is EVENT else mine}"  # the first question stays
    await ask(pool, other, theirs)
    await settle(pool, ref, mine)
    assert await shown(pool, ref) is Status.INPUT_REQUIRED
    await answer(pool, ref, second)
    await settle(pool, ref, second)
    assert await shown(pool, ref) is Status.WORKING and await shown(pool, other) is Status.INPUT_REQUIRED
    found = {
        row["id"]: row
        for row in await pool.fetch("SELECT * FROM input_requests WHERE id = ANY ($1)", [mine, second, theirs])
    }
    assert {name: (one["status"], one["settled"]) for name, one in found.items()} == {
        mine: ("expired", True),
        second: ("answered", True),
        theirs: ("open", False),
    }
    expired = [] if kind is EVENT else ["input_expired"]
    assert await emitted(pool, ref) == ["input_required", "input_required", *expired, "input_received"]
    audited = "SELECT action, actor, subject FROM audit WHERE chain = $1 AND action <> 'submit' ORDER BY seq"
    assert [tuple(row) for row in await pool.fetch(audited, ref.conversation_id)] == [
        *(("ask", "agent tester", f"{one} {name}") for one, name in ((kind, mine), (QUESTION, second))),
        ("expire", "errand", f"{kind} {mine}"),
        ("answer", "ann", f"{QUESTION} {second}"),
    ]


async def test_a_request_is_answered_once_and_by_its_own_session_only(pool: Pool, accept: Accept) -> None:
    ref, other = await accept(), await accept()
    request_id = new_id()
    await ask(pool, ref, request_id)
    await answer(pool, other, request_id)
    assert await pool.fetchval("SELECT status FROM input_requests WHERE id = $1", request_id) == "open"
    answers = await asyncio.gather(*(answer(pool, ref, request_id) for _ in range(4)))
    assert sorted(answers, key=str) == [None, *[RequestStatus.ANSWERED] * 3]
    assert (await emitted(pool, ref)).count("input_received") == 1
    row = await pool.fetchrow("SELECT * FROM input_requests WHERE id = $1", request_id)
    assert row is not None and (row["answer"], row["answered_by"]) == ('"yes"', "ann") and row["answered_at"]
    late = new_id()
    await ask(pool, ref, late)
    await settle(pool, ref, late)
    assert await answer(pool, ref, late) is RequestStatus.EXPIRED
    assert (await emitted(pool, ref)).count("input_received") == 1
