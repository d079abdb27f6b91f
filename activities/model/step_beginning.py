"""The beginning of a step in the store: written before the model is asked, beside the request, or with the reply."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from activities.runtime.event_writer import GATHER, EventWriter
from activities.runtime.fresh_steps import FreshSteps
from domain.sessions.session import SessionRef
from domain.sessions.step_writes import StepBegin, StepCommit
from store import messages
from store.database import COMMIT_PATIENCE, Pool, patiently
from store.messages import StepFacts


class StepBeginning:
    """Decides when the beginning of a step is written.

    Usually that write also reads what the call needs, so it comes first. If the worker knows these facts, the model is
    asked at once, and the write waits for a moment: if the reply arrives before it, the commit of the reply writes the
    beginning too. Until then the writer holds back the events of the session, because those of the beginning come
    before them.
    """

    def __init__(
        self, pool: Pool, events: EventWriter, fresh: FreshSteps | None, ref: SessionRef, begin: StepBegin
    ) -> None:
        self._pool = pool
        self._events = events
        self._fresh = fresh
        self._ref = ref
        self._begin = begin
        self._pending: asyncio.Task[None] | None = None  # set until the beginning is in the store
        self._writes = False

    async def facts(self) -> StepFacts:
        known = self._fresh.take(self._begin) if self._fresh is not None else None
        if known is None:
            return await messages.begin_step(self._pool, self._begin)
        self._events.hold(self._ref)
        self._pending = asyncio.create_task(self._write_soon())
        return known

    async def __aenter__(self) -> "StepBeginning":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Release the events, now that the beginning is written. If it is not, the next attempt of the call writes
        it, and the events of this one are dropped."""
        if self._pending is not None:
            self._pending.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._pending
            self._events.drop(self._ref)
            self._end()

    @contextlib.asynccontextmanager
    async def joined(self, commit: StepCommit) -> AsyncIterator[StepCommit]:
        """The commit with the events before it; and with the beginning, if that was not written before it."""
        if self._pending is not None and self._writes:
            await self._pending
        if self._pending is None:
            async with self._events.taken(self._ref) as taken:
                yield commit.model_copy(update={"batch": taken.name, "events": [*taken.rows, *commit.events]})
            return
        self._pending.cancel()  # before anything is awaited: from here on only the commit writes it
        # If the commit fails, these events are dropped like later ones: their beginning is not written.
        events = [*await self._events.take(self._ref), *commit.events]
        begun = {"begins": self._begin.step, "beginning": self._begin.events}
        yield commit.model_copy(update={**begun, "events": events})

    async def written(self, seconds: float) -> None:
        """Write the beginning now, if that has not happened yet."""
        if self._pending is None:
            return
        if not self._writes:
            self._pending.cancel()
            self._pending = asyncio.create_task(self._write())
        async with asyncio.timeout(seconds):
            await self._pending

    async def _write_soon(self) -> None:
        await asyncio.sleep(GATHER)
        await self._write()

    async def _write(self) -> None:
        self._writes = True
        await patiently(lambda: messages.write_beginning(self._pool, self._begin), seconds=COMMIT_PATIENCE)
        self._end()

    def _end(self) -> None:
        if self._pending is not None:
            self._pending = None
            self._events.release(self._ref)
