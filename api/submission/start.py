"""Start the workflow of an accepted session.

The row is committed, so a session that is accepted will run: what a request cannot start, because Temporal is
unreachable or its process dies, a worker's look at the rows starts under the same id (`Sweep.watch`).
"""

import asyncio
import logging

from api.http.problems import type_name
from api.services import Services
from domain.sessions.session import SessionRef, Status
from store import sessions
from store.sessions import SessionRow

log = logging.getLogger("errand.api")

START_SECONDS = 1.0  # a caller waits no longer for a start: the session is accepted all the same


async def start(services: Services, session: SessionRow) -> None:
    """Start the workflow, within a short limit."""
    try:
        async with asyncio.timeout(START_SECONDS):
            if await _start(services, session):
                return
        log.warning("session %s waits for Temporal or a worker", session.id)
    except Exception as error:
        log.warning("session %s waits for Temporal (%s)", session.id, type_name(error))


async def ensure_started(services: Services, ref: SessionRef) -> None:
    """Start a session that has not begun, before it is sent a message: its conversation cannot signal a workflow that
    does not exist. Another process may be about to start it, or died before it did; the same id makes a second start
    harmless."""
    session = await sessions.get(services.pool, ref.tenant, ref.session_id)
    if session is not None and session.live and session.status is Status.SUBMITTED:
        await start(services, session)


async def _start(services: Services, session: SessionRow) -> bool:
    if session.id == session.conversation_id and session.live:
        return await services.workflows.start(session.workflow_input())
    return await services.workflows.submit(
        session.workflow_input(), session.id, session.thread_id, queued=not session.live
    )
