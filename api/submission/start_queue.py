"""Starts of accepted sessions that run after their response was sent, and the bound on sessions that wait.

The rows are committed, so a start only saves time: the sweeper starts what a process that died left here.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from domain.amounts import counted
from domain.errors import Unavailable
from store import new_sessions
from store.database import Pool

MOST_AT_ONCE = 32  # further requests wait for their own start, so that a flood is as fast as Temporal
# Nobody waits longer for a start: a single one fails after two seconds (ANSWER_WITHIN in workflows.client), but many of
# one conversation would add up while no worker answers. Their order saves time; the rows decide.
PATIENCE_SECONDS = 3.0

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


class StartQueue:
    def __init__(self, most: int = MOST_AT_ONCE, patience_s: float = PATIENCE_SECONDS) -> None:
        self._most = most
        self._patience_s = patience_s
        self._running: set[asyncio.Task[None]] = set()
        self._last: dict[str, asyncio.Task[None]] = {}  # the newest start of each conversation

    def __len__(self) -> int:
        return len(self._running)

    async def run(self, conversation_id: str, start: Callable[[], Awaitable[None]]) -> None:
        """Run a start, after the earlier ones of its conversation. Return at once, unless too many are running."""
        full = len(self._running) >= self._most
        task = asyncio.create_task(self._after(self._last.get(conversation_id), start))
        self._running.add(task)
        self._last[conversation_id] = task
        task.add_done_callback(lambda ended: self._forget(conversation_id, ended))
        if full:
            await asyncio.wait([task])

    async def settled(self, conversation_id: str) -> bool:
        """Wait for the start of this conversation, which a signal must not overtake; False if none is running here."""
        if (task := self._last.get(conversation_id)) is None:
            return False
        await asyncio.wait([task], timeout=self._patience_s)
        return True

    async def drain(self) -> None:
        """Wait for all starts before the process ends. The sweeper repeats those that take longer."""
        if self._running:
            await asyncio.wait(self._running, timeout=self._patience_s)
        for task in self._running:
            task.cancel()

    def _forget(self, conversation_id: str, ended: "asyncio.Task[None]") -> None:
        self._running.discard(ended)
        if self._last.get(conversation_id) is ended:
            del self._last[conversation_id]

    async def _after(self, earlier: "asyncio.Task[None] | None", start: Callable[[], Awaitable[None]]) -> None:
        if earlier is not None:
            await asyncio.wait([earlier], timeout=self._patience_s)
        await start()
