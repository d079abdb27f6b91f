"""Sessions that wait for an event by its key: each wait is an input request that the event answers."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from domain.events import EventRow, InputReceived
from domain.sessions.input_request import RequestKind, RequestStatus
from domain.sessions.session import SessionRef
from domain.sessions.writes import RequestAnswer, RequestOpening
from domain.triggers import EventOutcome
from store import input_requests
from store.database import Connection, Pool
from store.external_events import NewEvent, decided, lock
from store.input_requests import OpenedRow


@dataclass(frozen=True)
class Answered:
    """A wait whose event has arrived. Its session is signalled after the transaction, or by the sweeper."""

    session_id: str
    conversation_id: str
    request_id: str

    @property
    def whose(self) -> tuple[str, str]:
        return self.session_id, self.conversation_id


@dataclass(frozen=True)
class OpenedWait:
    """A wait that was opened; or `held_by`, the session that already waits for this key."""

    opened: OpenedRow | None = None
    held_by: str | None = None


async def open_wait(pool: Pool, opening: RequestOpening, origin: str | None, since: datetime) -> OpenedWait:
    """Open a wait for a key. An event that arrived since the session began and that no session received answers it at
    once."""
    tenant, request = opening.tenant, opening.request
    assert request.event_key is not None
    async with pool.acquire() as connection, connection.transaction():
        await lock(connection, tenant, request.event_key)
        held_by: str | None = await connection.fetchval(
            """SELECT session_id FROM input_requests
                WHERE tenant = $1 AND event_key = $2 AND status = 'open' AND id <> $3""",
            tenant,
            request.event_key,
            request.id,
        )
        if held_by is not None:
            return OpenedWait(held_by=held_by)
        opened = await input_requests.open_request(connection, opening)
        if opened is None or opened.status is not RequestStatus.OPEN:
            return OpenedWait(opened)
        row = await connection.fetchrow(
            """SELECT source, event_id, type, key, body FROM external_events e
                WHERE tenant = $1 AND key = $2 AND outcome = 'kept' AND created_at >= $3
                  AND session_id IS DISTINCT FROM $5
                  AND ($4::text IS NULL OR EXISTS (SELECT 1 FROM triggers t
                                                    WHERE t.tenant = e.tenant AND t.id = e.source AND t.name = $4))
                ORDER BY created_at LIMIT 1 FOR UPDATE""",
            tenant,
            request.event_key,
            since,
            origin,
            request.session_id,
        )
        if row is not None:
            event = NewEvent(row["source"], "", row["event_id"], row["type"], row["key"], row["body"])
            waiting = Answered(request.session_id, request.conversation_id, request.id)
            await _answer(connection, tenant, event, waiting)
            await decided(connection, tenant, event, EventOutcome.DELIVERED, waiting.whose)
            opened = opened.model_copy(update={"status": RequestStatus.ANSWERED})
        return OpenedWait(opened)


async def answer_wait(
    connection: Connection, tenant: str, event: NewEvent, except_thread: str | None = None
) -> Answered | None:
    if event.key is None:
        return None
    row: asyncpg.Record | None = await connection.fetchrow(
        """SELECT r.id, r.session_id, r.conversation_id, r.details FROM input_requests r
             JOIN sessions s ON s.tenant = r.tenant AND s.id = r.session_id
            WHERE r.tenant = $1 AND r.event_key = $2 AND r.status = 'open' AND s.thread_id IS DISTINCT FROM $3""",
        tenant,
        event.key,
        except_thread,
    )
    if row is None:
        return None
    wanted: dict[str, Any] = json.loads(row["details"])
    if wanted.get("trigger") not in (None, event.origin):
        return None
    waiting = Answered(row["session_id"], row["conversation_id"], row["id"])
    return waiting if await _answer(connection, tenant, event, waiting) else None


async def _answer(connection: Connection, tenant: str, event: NewEvent, waiting: Answered) -> bool:
    """Answer a wait with its event; False if the wait has ended by now."""
    ref = SessionRef(tenant=tenant, session_id=waiting.session_id, conversation_id=waiting.conversation_id)
    received = InputReceived(request_id=waiting.request_id, kind=RequestKind.EXTERNAL_EVENT, by=event.source)
    given = RequestAnswer(
        tenant=tenant,
        id=waiting.request_id,
        session_id=waiting.session_id,
        answer=json.dumps({"text": event.text}),
        by=event.origin or event.source,
        events=[EventRow.of(ref, received)],
    )
    return await input_requests.answer(connection, given) is None
