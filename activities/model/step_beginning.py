"""The beginning of a step in the store: written before the model is asked, beside the request, or with the reply."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from temporalio.exceptions import ApplicationError

from activities.runtime.event_writer import GATHER, EventWriter
from activities.runtime.step_memory import StepMemory
from domain import wire
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
    before them. The result before the call is written with the beginning, if it is not written yet.
    """

    def __init__(
        self,
        pool: Pool,
        events: EventWriter,
        memory: StepMemory,
        ref: SessionRef,
        begin: StepBegin,
        *,
        fresh: bool = True,
        awaits: bool = False,
    ) -> None:
        """`fresh`: the facts that the worker knows are valid. `awaits`: the result before the call may not be written
        yet."""
        self._pool = pool
        self._events = events
        self._memory = memory
        self._fresh = fresh
        self._awaits = awaits
        self._ref = ref
        self._begin = begin
        self._pending: asyncio.Task[None] | None = None  # set until the beginning is in the store
        self._writes = False

    async def facts(self) -> StepFacts:
        result = await self._memory.deferred.take(self._begin.tenant, self._begin.head)
        known = self._memory.steps.take(self._begin) if self._fresh else None
        if self._awaits and result is None and known is None:
            assert self._begin.head is not None
            if not await self._memory.deferred.seen(self._begin.tenant, self._begin.head):
                message = "The result before this call was lost."
                raise ApplicationError(message, type=wire.RESULT_LOST, non_retryable=True)
        if result is not None:  # of this run, or of the one that it continues
            result = result.model_copy(update={"run": self._begin.run})
        self._begin = self._begin.model_copy(update={"result": result})
        if known is None:
            facts = await messages.begin_step(self._pool, self._begin)
            self._begin = self._begin.model_copy(update={"result": None})
            return facts
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
        if self._begin.result is not None:  # nothing has written it
            self._memory.deferred.put(self._ref, self._begin.result)

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
        begun = {"begins": self._begin.step, "beginning": self._begin.events, "result": self._begin.result}
        yield commit.model_copy(update={**begun, "events": events})
        self._begin = self._begin.model_copy(update={"result": None})

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
        self._begin = self._begin.model_copy(update={"result": None})
        self._end()

    def _end(self) -> None:
        if self._pending is not None:
            self._pending = None
            self._events.release(self._ref)
