"""Stopping: the wish is noted in the row first, so that it holds; asking the workflow is only faster."""

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from api.auth import Caller
from api.http.problems import type_name
from api.services import Services
from domain.events import CancelRequested, TaskCancelled
from domain.ids import derive_id
from domain.sessions.session import Reason
from domain.sessions.step import StopRequest
from store import endings, events, sessions
from store.sessions import SessionRow

log = logging.getLogger("errand.api")

AT_ONCE = 20  # stops under way together


@dataclass(frozen=True)
class Stop:
    """How a session is to end, and how long its tools may still run."""

    reason: Reason
    note: str = ""
    grace_ms: int = 0
    tree: bool = False  # nothing new begins below it from here on


async def stop(parts: Services, caller: Caller, session: SessionRow, how: Stop, key: str = "") -> None:
    if session.status.terminal:
        return
    request = StopRequest(reason=how.reason, by=caller.name, note=how.note, grace_ms=how.grace_ms)
    wish = {**request.model_dump(mode="json"), "at": datetime.now(UTC).isoformat(), "request_id": key or None}
    wish |= {"scope": "tree"} if how.tree else {}
    wish["actor"] = caller.created_by  # names of keys may repeat
    mode = "graceful" if how.grace_ms else "hard"
    event = CancelRequested(reason=how.reason, by=caller.name, note=how.note, mode=mode)
    await sessions.request_cancel(parts.pool, session.ref, wish, events.to_row(session.ref, event))
    ending = _ending(session, how.reason)
    if not session.live and await endings.end_queued(parts.pool, session.tenant, session.id, ending):
        return
    try:
        heard = await parts.door.stop(session.id, request)
    except Exception as error:
        log.warning("session %s will see its stop later (%s)", session.id, type_name(error))
        heard = False
    if not heard:
        parts.later.add(f"the stop of {session.id}", lambda: _stopped(parts, session, request))


async def _stopped(parts: Services, session: SessionRow, request: StopRequest) -> bool:
    now = await sessions.get(parts.pool, session.tenant, session.id)
    return now is None or now.status.terminal or await parts.door.stop(session.id, request)


async def stop_all(parts: Services, caller: Caller, session_ids: list[str], how: Stop) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(session_id: str) -> None:
        async with gate:
            session = await sessions.get(parts.pool, caller.tenant, session_id)
            if session is not None:
                await stop(parts, caller, session, how)

    await asyncio.gather(*(one(session_id) for session_id in session_ids))


def _ending(session: SessionRow, reason: Reason) -> dict[str, Any]:
    """Of a session that never began."""
    ended = TaskCancelled(status=reason.status, reason=reason, partial=False, usage=session.usage)
    return {
        "tenant": session.tenant,
        "session_id": session.id,
        "status": reason.status,
        "reason": reason,
        "partial": False,
        "head": session.head,
        "step": 0,
        "version": session.version + 1,
        "message_id": derive_id(session.id, "outcome"),
        "nodes": [],
        "events": [events.to_row(session.ref, ended)],
    }
