"""Updates Temporal's schedules from the rows, after a crash in between or after Temporal lost its data."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import TypeVar

from domain.errors import Unavailable
from domain.schedules import Schedule
from domain.sessions.session import Reason, RecordedStop, Scope
from store import missions, schedule_runs, schedules, sessions
from store.database import Pool
from store.sessions import SessionRow
from workflows.schedules import ScheduleClient

log = logging.getLogger("errand.worker")

COMPARE_SECONDS = 600.0  # how often all schedules are compared


class ScheduleSync:
    def __init__(self, pool: Pool, client: ScheduleClient) -> None:
        self._pool = pool
        self._client = client
        self._compared: float | None = None

    async def repair(self) -> None:
        await schedule_runs.settle(self._pool)
        working = await missions.list_working(self._pool)
        await one_by_one("missions", working, lambda one: missions.settle(self._pool, *one))
        left = {session.id: session for session in await missions.find_left_running(self._pool)}
        await one_by_one("runs of cancelled missions", left, lambda one: self._stop(left[one]))
        if self._compared is None or time.monotonic() - self._compared > COMPARE_SECONDS:
            if lost := await schedules.note_missing(self._pool, await self._client.ids()):
                log.warning("%d schedules are missing in Temporal and are created again", lost)
            self._compared = time.monotonic()
        unsynced = {schedule.id: schedule for schedule in await schedules.find_unsynced(self._pool)}
        await one_by_one("schedules", unsynced, lambda one: self.put(unsynced[one]))

    async def _stop(self, run: SessionRow) -> None:
        """Record the stop; the next sweep signals it to a run that has begun."""
        note = "its mission was cancelled"
        stop = RecordedStop(reason=Reason.CALLER_CANCEL, by="errand", note=note, at=datetime.now(UTC), scope=Scope.TREE)
        await sessions.request_cancel(self._pool, run.ref, stop)
        if not run.live:
            await sessions.end_queued(self._pool, sessions.ending_of_unbegun(run, stop.reason))

    async def put(self, schedule: Schedule) -> None:
        await self._client.put(schedule)
        await schedules.mark_synced(self._pool, schedule)


# Background work on many items: a failure of one must not delay the others.


Item = TypeVar("Item")


async def one_by_one(what: str, items: Iterable[Item], work: Callable[[Item], Awaitable[object]]) -> list[Exception]:
    """Run the work on each item; returns the errors. If Temporal is unreachable, the rest is left for the next time."""
    failed: list[Exception] = []
    for item in items:
        try:
            await work(item)
        except Exception as error:
            log.warning("%s: %s: %r", what, item, error)
            failed.append(error)
            if isinstance(error, Unavailable):
                break
    return failed
