"""Starts of accepted sessions that run after their response was sent.

The rows are committed, so this only saves time: the sweeper starts what a process that died left here.
"""

import asyncio
from collections.abc import Awaitable, Callable

MOST_AT_ONCE = 32  # further requests wait for their own start, so that a flood is as fast as Temporal
# Nobody waits longer for a start: a single one fails after two seconds (ANSWER_WITHIN in workflows.client), but many of
# one conversation would add up while no worker answers. Their order saves time; the rows decide.
PATIENCE_SECONDS = 3.0


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
