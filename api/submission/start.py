"""Start the workflow of an accepted session, or queue a retry if Temporal is unreachable."""

import logging

from api.http.problems import type_name
from api.services import Services
from store import sessions
from store.sessions import SessionRow

log = logging.getLogger("errand.api")


async def start(services: Services, session: SessionRow) -> None:
    """The row is committed, so the session will run: a failed start is tried again under the same id, at last by the
    sweeper."""
    try:
        if await _start(services, session):
            return
        log.warning("session %s waits for Temporal or a worker", session.id)
    except Exception as error:
        log.warning("session %s waits for Temporal (%s)", session.id, type_name(error))
    services.retry_queue.add(f"the start of {session.id}", lambda: _start_again(services, session))


async def _start_again(services: Services, session: SessionRow) -> bool:
    """The row may have changed: the session was stopped, or left its queue, while its start waited."""
    current = await sessions.get(services.pool, session.tenant, session.id)
    assert current is not None
    return current.status.terminal or await _start(services, current)


async def _start(services: Services, session: SessionRow) -> bool:
    if session.id == session.conversation_id:
        return await services.workflows.start(session.workflow_input())
    return await services.workflows.submit(
        session.workflow_input(), session.id, session.thread_id, queued=not session.live
    )
