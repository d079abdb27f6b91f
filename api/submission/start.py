"""Start the workflow of an accepted session.

The row is committed, so a session that is accepted will run: what a request cannot start, because Temporal is
unreachable or its process dies, a worker's look at the rows starts under the same id (`Sweep.watch`).
"""

import asyncio
import logging
import time

from api.http.problems import type_name
from domain.sessions.session import SessionRef, Status
from store import sessions
from store.database import Pool
from store.sessions import SessionRow
from workflows.client import WorkflowClient

log = logging.getLogger("errand.api")

START_SECONDS = 1.0  # a caller waits no longer for a start: the session is accepted all the same
AWAY_SECONDS = 3.0  # no caller waits for a Temporal that has just not answered


class Starts:
    def __init__(self, pool: Pool, workflows: WorkflowClient) -> None:
        self._pool = pool
        self._workflows = workflows
        self._away_until = float("-inf")

    async def start(self, session: SessionRow) -> None:
        """Start the workflow, within a short limit."""
        if time.monotonic() < self._away_until:
            return
        try:
            async with asyncio.timeout(START_SECONDS):
                if await self._start(session):
                    return
            log.warning("session %s waits for Temporal or a worker", session.id)
        except Exception as error:
            self._away_until = time.monotonic() + AWAY_SECONDS
            log.warning("session %s waits for Temporal (%s)", session.id, type_name(error))

    async def ensure_started(self, ref: SessionRef) -> None:
        """Start a session that has not begun, before it is sent a message: its conversation cannot signal a workflow
        that does not exist. Another process may be about to start it, or died before it did; the same id makes a second
        start harmless."""
        session = await sessions.get(self._pool, ref.tenant, ref.session_id)
        if session is not None and session.live and session.status is Status.SUBMITTED:
            await self.start(session)

    async def _start(self, session: SessionRow) -> bool:
        if session.id == session.conversation_id and session.live:
            return await self._workflows.start(session.workflow_input())
        return await self._workflows.submit(
            session.workflow_input(), session.id, session.thread_id, queued=not session.live
        )
