"""Stopping a session: its row records the request first and counts; the signal only speeds it up."""

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from api.http.auth import Call
from api.http.problems import type_name
from api.services import Services
from domain.sessions.session import Reason, Scope
from domain.sessions.step import RecordedStop, StopRequest
from store import endings, sessions
from store.sessions import SessionRow

log = logging.getLogger("errand.api")

AT_ONCE = 20  # stops sent at the same time


@dataclass(frozen=True)
class Stop:
    """How a session must end, and how long its tools may still run."""

    reason: Reason
    note: str = ""
    grace_ms: int = 0
    tree: bool = False  # its subagents must not start anything new either

    def recorded(self, call: Call, key: str = "") -> RecordedStop:
        return RecordedStop(
            reason=self.reason,
            by=call.caller.name,
            note=self.note,
            grace_ms=self.grace_ms,
            at=datetime.now(UTC),
            request_id=key or None,
            scope=Scope.TREE if self.tree else None,
            actor=call.caller.created_by,  # the id, because names of keys may repeat
        )


async def stop(call: Call, session: SessionRow, how: Stop, key: str = "") -> None:
    """Record the request, then end a queued session here or signal the workflow of a running one."""
    if session.status.terminal:
        return
    request = StopRequest(reason=how.reason, by=call.caller.name, note=how.note, grace_ms=how.grace_ms)
    # The row first: if this process dies after this line, the next step or the sweeper finds the request there.
    await sessions.request_cancel(call.pool, session.ref, how.recorded(call, key))
    ending = endings.of_unbegun(session, how.reason)
    # The row may be outdated: the session can have started since it was read. `end_queued` checks again under a lock
    # and returns False then, so that the workflow is signalled.
    if not session.live and await endings.end_queued(call.pool, ending):
        return
    try:
        delivered = await call.services.workflows.stop(session.id, request)
    except Exception as error:
        log.warning("session %s will see its stop later (%s)", session.id, type_name(error))
        delivered = False
    if not delivered:
        call.services.retry_queue.add(f"the stop of {session.id}", lambda: _stopped(call.services, session, request))


async def _stopped(services: Services, session: SessionRow, request: StopRequest) -> bool:
    now = await sessions.get(services.pool, session.tenant, session.id)
    return now is None or now.status.terminal or await services.workflows.stop(session.id, request)


async def stop_all(call: Call, session_ids: list[str], how: Stop) -> None:
    # each stop uses a connection of the pool, which other requests need too
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(session_id: str) -> None:
        async with gate:
            session = await sessions.get(call.pool, call.tenant, session_id)
            if session is not None:
                await stop(call, session, how)

    await asyncio.gather(*(one(session_id) for session_id in session_ids))
