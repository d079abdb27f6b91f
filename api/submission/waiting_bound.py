"""The bound on tasks that wait for a worker."""

import time

from domain.amounts import counted
from domain.errors import Unavailable
from store import new_sessions
from store.database import Pool

LOOK_SECONDS = 1.0  # between two counts of the rows, while fewer wait than may
TRY_AGAIN_SECONDS = 10


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
        waiting = await new_sessions.count_waiting(self._pool, tenant)
        self._waiting = waiting.total + 1
        if waiting.total >= self._most and waiting.own >= self._most / waiting.tenants:
            limit = counted(self._most, "task")
            detail = f"Too many tasks wait for a worker (ERRAND_WAITING_TASKS allows {limit})."
            raise Unavailable(detail, type="overloaded", retry_after=TRY_AGAIN_SECONDS)
