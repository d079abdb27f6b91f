"""Updates Temporal's schedules from the rows, after a crash in between or after Temporal lost its data."""

import logging
import time

from activities.runtime.one_by_one import one_by_one
from domain.schedules.schedule import Schedule
from store import missions, schedule_runs, schedules
from store.database import Pool
from workflows.schedule_client import ScheduleClient

log = logging.getLogger("errand.worker")

COMPARE_SECONDS = 600.0  # how often all schedules are compared


class ScheduleSync:
    def __init__(self, pool: Pool, client: ScheduleClient) -> None:
        self._pool = pool
        self._client = client
        self._compared: float | None = None

    async def repair(self) -> None:
        await schedule_runs.settle(self._pool)
        working = await missions.working(self._pool)
        await one_by_one("missions", working, lambda one: missions.settle(self._pool, *one))
        if self._compared is None or time.monotonic() - self._compared > COMPARE_SECONDS:
            if lost := await schedules.note_missing(self._pool, await self._client.ids()):
                log.warning("%d schedules are missing in Temporal and are created again", lost)
            self._compared = time.monotonic()
        unsynced = {schedule.id: schedule for schedule in await schedules.unsynced(self._pool)}
        await one_by_one("schedules", unsynced, lambda one: self._put(unsynced[one]))

    async def _put(self, schedule: Schedule) -> None:
        await self._client.put(schedule)
        await schedules.synced(self._pool, schedule)
