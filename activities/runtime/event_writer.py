"""The event writer: one per process. It collects the events of all running activities into few, ordered writes."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

from domain.events import CallAttempt, Event, EventRow
from domain.events.model import TextDelta
from domain.ids import new_id
from domain.sessions.session import SessionRef
from store import events
from store.database import Pool, patiently

log = logging.getLogger("errand.worker")

INTERVAL = 0.03  # seconds between flushes, so that a stream of events is written in batches
# Seconds that a single event waits. A quick call ends within this time, and its commit writes the event as well.
GATHER = 0.015
PATIENCE = 3_600.0  # seconds that a write is repeated while the database is unreachable


@dataclass
class Batch:
    """The events of one write. A repetition is recognised by its name."""

    name: str
    rows: list[EventRow]
    tried: bool = False


class EventWriter:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._buffer: list[tuple[SessionRef, Event, datetime, CallAttempt | None]] = []
        self._batches: list[Batch] = []  # to be written before the buffer; the first is repeated if it is cut off
        self._taken: dict[SessionRef, asyncio.Event] = {}  # set when the transaction that took events has ended
        self._held: Counter[SessionRef] = Counter()
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "EventWriter":
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._held.clear()
        while self._batches or self._buffer:
            await self._flush(seconds=2)

    def put(self, ref: SessionRef, event: Event, by: CallAttempt | None = None) -> None:
        """Publish soon. A delta is merged with the one before it, so that a slow database costs latency and not
        memory."""
        if self._buffer and isinstance(event, TextDelta):
            last_ref, last, at, last_by = self._buffer[-1]
            if (last_ref, last_by) == (ref, by) and isinstance(last, type(event)) and last.step == event.step:
                self._buffer[-1] = (ref, last.model_copy(update={"text": last.text + event.text}), at, by)
                return
        self._buffer.append((ref, event, datetime.now(UTC), by))
        if ref not in self._held:  # else `release` wakes it
            self._wake.set()

    def hold(self, ref: SessionRef) -> None:
        """Write no events of a session before `release`: others have to come first. They can be taken."""
        self._held[ref] += 1

    def release(self, ref: SessionRef) -> None:
        self._held[ref] -= 1
        if not self._held[ref]:
            del self._held[ref]
        if self._buffer:
            self._wake.set()

    def drop(self, ref: SessionRef) -> None:
        """Forget the unwritten events of a session."""
        self._buffer = [item for item in self._buffer if item[0] != ref]

    async def take(self, ref: SessionRef) -> list[EventRow]:
        """The unwritten events of a session. The caller writes them, or they are lost."""
        async with self._taking(ref):
            return self._remove(ref)

    @contextlib.asynccontextmanager
    async def taken(self, ref: SessionRef) -> AsyncIterator[Batch]:
        """The unwritten events of a session, for a transaction that must come after them and writes them under the
        name of the batch. If it fails or is cancelled, the writer writes them, unless it finds them under that name."""
        async with self._taking(ref):
            rows = self._remove(ref)
            batch = Batch(new_id() if rows else "", rows, tried=True)
            ended = asyncio.Event()
            if rows:
                self._taken[ref] = ended
        try:
            yield batch
        except BaseException:
            if rows:
                self._batches.append(batch)
                self._wake.set()
            raise
        finally:
            if rows:
                del self._taken[ref]
                ended.set()

    @contextlib.asynccontextmanager
    async def _taking(self, ref: SessionRef) -> AsyncIterator[None]:
        """Enter once no transaction has events of this session that it may still give back."""
        while True:
            async with self._writing:
                if (other := self._taken.get(ref)) is None:
                    await self._write(seconds=PATIENCE)
                    yield
                    return
            await other.wait()

    def _remove(self, ref: SessionRef) -> list[EventRow]:
        mine = [item for item in self._buffer if item[0] == ref]
        self.drop(ref)
        return [EventRow.of(*item) for item in mine]

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER)
            self._wake.clear()
            await self._flush(seconds=PATIENCE)
            await asyncio.sleep(INTERVAL - GATHER)  # collect the events that arrive in this time

    async def _flush(self, seconds: float) -> None:
        async with self._writing:
            items = [item for item in self._buffer if item[0] not in self._held]
            self._buffer = [item for item in self._buffer if item[0] in self._held]
            if items:
                self._batches.append(Batch(new_id(), [EventRow.of(*item) for item in items]))
            await self._write(seconds)

    async def _write(self, seconds: float) -> None:
        while self._batches:
            batch = self._batches[0]

            async def write(batch: Batch = batch) -> None:
                again, batch.tried = batch.tried, True
                await events.append(self._pool, batch.name, batch.rows, again=again)

            try:
                await patiently(write, seconds=seconds)
            except Exception as error:  # these events are lost, but later ones must still be written
                log.error("%d events could not be written (%s)", len(batch.rows), type(error).__name__)
            self._batches.remove(batch)
