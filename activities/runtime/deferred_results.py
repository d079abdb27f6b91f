"""Results of reads that are not written yet. The next model call writes such a result in its own transaction."""

import asyncio
import logging
from dataclasses import dataclass, field

from activities.runtime.event_writer import EventWriter
from domain.sessions.session import SessionRef
from domain.sessions.tool_writes import ToolCommit
from store import tool_calls
from store.database import COMMIT_PATIENCE, Pool, patiently

log = logging.getLogger("errand.worker")

LOOKS, LOOK_PAUSE = 20, 0.015  # at the result of another worker
PAUSE = 0.05  # seconds: two round trips to Temporal, until the model call begins


@dataclass(eq=False)
class Deferred:
    ref: SessionRef
    commit: ToolCommit
    writing: bool = False
    task: asyncio.Task[None] = field(init=False)


class DeferredResults:
    """Keeps a result for a moment, in which the model call that needs it usually begins in this worker. Otherwise the
    result is written alone. A worker that is killed in that moment loses it; then the read is repeated. Events of the
    session wait meanwhile, because those of the result come first."""

    def __init__(self, pool: Pool, events: EventWriter) -> None:
        self._pool = pool
        self._events = events
        self._kept: dict[tuple[str, str], Deferred] = {}

    def put(self, ref: SessionRef, commit: ToolCommit) -> None:
        self._events.hold(ref)
        deferred = self._kept[commit.tenant, commit.node] = Deferred(ref, commit)
        deferred.task = asyncio.create_task(self._write_soon(deferred))

    async def take(self, tenant: str, node: str | None) -> ToolCommit | None:
        """The result of the call in this node, for a transaction that writes it; None if there is none to write."""
        deferred = self._kept.get((tenant, node or ""))
        if deferred is None:
            return None
        if deferred.writing:
            await asyncio.shield(deferred.task)
            return None
        deferred.task.cancel()
        self._end(deferred)
        return deferred.commit

    async def written(self, ref: SessionRef | None = None) -> None:
        """Write the results of this session, or of all, now."""
        for deferred in [one for one in self._kept.values() if ref in (None, one.ref)]:
            if not deferred.writing:
                deferred.task.cancel()
                deferred.writing = True  # from here on nobody takes it
                deferred.task = asyncio.create_task(self._write(deferred))
            await asyncio.shield(deferred.task)

    async def seen(self, tenant: str, node: str) -> bool:
        """Wait for a result that another worker is about to write. False: it was probably killed."""
        for _ in range(LOOKS):
            if await tool_calls.results(self._pool, tenant, node):
                return True
            await asyncio.sleep(LOOK_PAUSE)
        return False

    async def _write_soon(self, deferred: Deferred) -> None:
        await asyncio.sleep(PAUSE)
        await self._write(deferred)

    async def _write(self, deferred: Deferred) -> None:
        deferred.writing = True
        try:
            await patiently(lambda: tool_calls.commit(self._pool, deferred.commit), seconds=COMMIT_PATIENCE)
        except Exception as error:  # the next model call misses it, and the read is repeated
            log.warning("a result could not be written (%s)", type(error).__name__)
        finally:
            self._end(deferred)

    def _end(self, deferred: Deferred) -> None:
        key = (deferred.commit.tenant, deferred.commit.node)
        if self._kept.get(key) is deferred:
            del self._kept[key]
        self._events.release(deferred.ref)
