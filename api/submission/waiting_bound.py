"""The bound on sessions that wait for a worker."""

import time

from domain.amounts import counted
from domain.errors import Unavailable
from store import new_sessions
from store.database import Pool

LOOK_SECONDS = 1.0  # between two counts of the rows; in between, this process adds what it accepts itself
TRY_AGAIN_SECONDS = 10


class WaitingBound:
    """Refuses sessions while as many as `most` of all tenants wait for a worker: to accept more would only make all of
    them wait longer, for the acceptance too."""

    def __init__(self, pool: Pool, most: int) -> None:
        self._pool = pool
        self._most = most  # 0: no limit
        self._waiting = 0
        self._looked_at = float("-inf")

    async def check(self) -> None:
        if not self._most:
            return
        if time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._looked_at = time.monotonic()  # before the query: one request looks, the others do not wait for it
            self._waiting = await new_sessions.count_waiting(self._pool, self._most)
        if self._waiting >= self._most:
            limit = counted(self._most, "task")
            detail = f"Too many tasks wait for a worker (ERRAND_WAITING_TASKS allows {limit})."
            raise Unavailable(detail, type="overloaded", retry_after=TRY_AGAIN_SECONDS)
        self._waiting += 1
