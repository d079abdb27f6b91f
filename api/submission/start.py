"""Start the workflow of an accepted session, after its response was sent."""

import logging

from api.http.problems import type_name
from api.services import Services
from domain.sessions.session import SessionRef, Status
from store import sessions
from store.new_sessions import Accepted
from store.sessions import SessionRow

log = logging.getLogger("errand.api")


async def start(services: Services, session: SessionRow) -> None:
    """Start the workflow in the background, or queue a retry if Temporal is unreachable.

    The row is committed, so the session will run: a failed start is repeated under the same id, finally by the sweeper.
    """
    await services.starts.run(session.conversation_id, lambda: _start_or_retry(services, session))


async def start_accepted(services: Services, ref: SessionRef, accepted: Accepted) -> None:
    """The same for a session whose row has not been parsed."""

    async def start_it() -> None:
        assert accepted.session is not None
        await _start_or_retry(services, accepted.session)

    await services.starts.run(ref.conversation_id, start_it)


async def ensure_started(services: Services, ref: SessionRef) -> None:
    """Start a session that has not begun, before it is sent a message: its conversation cannot signal a workflow that
    does not exist. Another process may be about to start it, or died before it did; the same id makes a second start
    harmless."""
    if await services.starts.settled(ref.conversation_id):
        return
    session = await sessions.get(services.pool, ref.tenant, ref.session_id)
    if session is not None and session.live and session.status is Status.SUBMITTED:
        await _try_to_start(services, session)


async def _start_or_retry(services: Services, session: SessionRow) -> None:
    if not await _try_to_start(services, session):
        services.retry_queue.add(f"the start of {session.id}", lambda: _start_again(services, session))


async def _try_to_start(services: Services, session: SessionRow) -> bool:
    try:
        if await _start(services, session):
            return True
        log.warning("session %s waits for Temporal or a worker", session.id)
    except Exception as error:
        log.warning("session %s waits for Temporal (%s)", session.id, type_name(error))
    return False


async def _start_again(services: Services, session: SessionRow) -> bool:
    """Read the row again: the session may have been stopped, or left its queue, while its start waited."""
    current = await sessions.get(services.pool, session.tenant, session.id)
    assert current is not None
    return current.status.terminal or await _start(services, current)


async def _start(services: Services, session: SessionRow) -> bool:
    if session.id == session.conversation_id and session.live:
        return await services.workflows.start(session.workflow_input())
    return await services.workflows.submit(
        session.workflow_input(), session.id, session.thread_id, queued=not session.live
    )
