"""Starting what was accepted: the row is committed, so it will run; here it is only begun as soon as anybody hears."""

import logging

from api.http.problems import type_name
from api.services import Services
from domain.sessions.session import SessionRef
from store import sessions

log = logging.getLogger("errand.api")


async def start(parts: Services, ref: SessionRef) -> None:
    """Whatever goes wrong here, it is tried again, and in the end the sweeper starts it; by the same id."""
    try:
        if await _started(parts, ref):
            return
        log.warning("session %s waits for Temporal or a worker, which is away", ref.session_id)
    except Exception as error:
        log.warning("session %s waits for Temporal (%s)", ref.session_id, type_name(error))
    parts.later.add(f"the start of {ref.session_id}", lambda: _started(parts, ref))


async def _started(parts: Services, ref: SessionRef) -> bool:
    session = await sessions.get(parts.pool, ref.tenant, ref.session_id)
    assert session is not None
    if session.status.terminal:  # stopped while it waited
        return True
    if session.id == session.conversation_id:
        return await parts.door.start(session.workflow_input())
    return await parts.door.submit(session.workflow_input(), session.id, session.thread_id, queued=not session.live)
