"""Start the workflow of an accepted session, and refuse tasks while too many wait for a worker.

The row is committed, so a session that is accepted will run: what a request cannot start, because Temporal is
unreachable or its process dies, a worker's look at the rows starts under the same id (`Sweep.watch`).
"""

import asyncio
import logging
import time

from api.http.problems import type_name
from domain.amounts import counted
from domain.errors import Unavailable
from domain.sessions.session import SessionRef, Status
from store import sessions
from store.database import Pool
from store.sessions import SessionRow
from workflows.client import WorkflowClient

log = logging.getLogger("errand.api")

START_SECONDS = 1.0  # a caller waits no longer for a start: the session is accepted all the same
AWAY_SECONDS = 3.0  # no caller waits for a Temporal that has just not answered
LOOK_SECONDS = 1.0  # between two counts of the rows, while fewer wait than may
TRY_AGAIN_SECONDS = 10


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


class WaitingBound:
    """Refuses tasks while `most` of all tenants wait for a worker: to accept more would only make all of them wait
    longer, for the acceptance too. Only tenants that use up their share of `most` are refused."""

    def __init__(self, pool: Pool, most: int) -> None:
        self._pool = pool
        self._most = most  # 0: no limit
        self._waiting = 0  # at most, as far as this process knows: some of its requests open no task
        self._looked_at = float("-inf")

    async def check(self, tenant: str) -> None:
        """Ask before anything is stored, and only for a request that needs a worker to begin something."""
        if not self._most:
            return
        self._waiting += 1
        if self._waiting <= self._most and time.monotonic() - self._looked_at <= LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()  # before the query: below the bound only one request looks
        waiting = await sessions.count_waiting(self._pool, tenant)
        self._waiting = waiting.total + 1
        if waiting.total >= self._most and waiting.own >= self._most / waiting.tenants:
            limit = counted(self._most, "task")
            detail = f"Too many tasks wait for a worker (ERRAND_WAITING_TASKS allows {limit})."
            raise Unavailable(detail, type="overloaded", retry_after=TRY_AGAIN_SECONDS)
