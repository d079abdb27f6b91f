"""The event writer: one per process. It collects the pieces of streamed texts into few, ordered writes."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from domain.events import CallAttempt, Event, EventRow, TextDelta
from domain.ids import new_id
from domain.sessions.session import SessionRef
from store import events
from store.database import Pool, patiently

log = logging.getLogger("errand.worker")

INTERVAL = 0.03  # seconds between writes, so that a stream of events is written in batches
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
        self._batch: Batch | None = None  # the one that is being written; it is repeated if it was cut off
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
        await self.flush(seconds=2)

    def put(self, ref: SessionRef, event: Event, by: CallAttempt | None = None) -> None:
        """Publish soon. A delta is merged with the one before it, so that a slow database costs latency and not
        memory."""
        if self._buffer and isinstance(event, TextDelta):
            last_ref, last, at, last_by = self._buffer[-1]
            if (last_ref, last_by) == (ref, by) and isinstance(last, type(event)) and last.step == event.step:
                self._buffer[-1] = (ref, last.model_copy(update={"text": last.text + event.text}), at, by)
                return
        self._buffer.append((ref, event, datetime.now(UTC), by))
        self._wake.set()

    async def flush(self, seconds: float = PATIENCE) -> None:
        """Write what was put so far. Every transaction whose events must come after it waits for this first."""
        async with self._writing:
            await self._write(seconds)  # one that was cut off
            if self._buffer:
                self._batch = Batch(new_id(), [EventRow.of(*item) for item in self._buffer])
                self._buffer = []
                await self._write(seconds)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.flush()
            await asyncio.sleep(INTERVAL)  # collect the events that arrive in this time

    async def _write(self, seconds: float) -> None:
        if (batch := self._batch) is None:
            return

        async def write() -> None:
            again, batch.tried = batch.tried, True
            await events.append(self._pool, batch.name, batch.rows, again=again)

        try:
            await patiently(write, seconds=seconds)
        except Exception as error:  # these events are lost, but later ones must still be written
            log.error("%d events could not be written (%s)", len(batch.rows), type(error).__name__)
        self._batch = None
