"""Starting what was accepted: the row is committed, so it will run; here it is only begun as soon as anybody hears."""

import logging

from api.http.problems import type_name
from api.services import Services
from domain.sessions.session import SessionRef
from store import sessions

log = logging.getLogger("errand.api")


async def start(services: Services, ref: SessionRef) -> None:
    """Whatever goes wrong here, it is tried again, and in the end the sweeper starts it; by the same id."""
    try:
        if await _started(services, ref):
            return
        log.warning("session %s waits for Temporal or a worker, which is away", ref.session_id)
    except Exception as error:
        log.warning("session %s waits for Temporal (%s)", ref.session_id, type_name(error))
    services.retry_queue.add(f"the start of {ref.session_id}", lambda: _started(services, ref))


async def _started(services: Services, ref: SessionRef) -> bool:
    session = await sessions.get(services.pool, ref.tenant, ref.session_id)
    assert session is not None
    if session.status.terminal:  # stopped while it waited
        return True
    if session.id == session.conversation_id:
        return await services.workflows.start(session.workflow_input())
    return await services.workflows.submit(
        session.workflow_input(), session.id, session.thread_id, queued=not session.live
    )
