"""Updates Temporal's schedules from the rows, after a crash in between or after Temporal lost its data."""

import logging
import time

from temporalio.service import RPCError

from domain.errors import Unavailable
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
        for tenant, mission_id in await missions.working(self._pool):
            await missions.settle(self._pool, tenant, mission_id)
        if self._compared is None or time.monotonic() - self._compared > COMPARE_SECONDS:
            if lost := await schedules.note_missing(self._pool, await self._client.ids()):
                log.warning("%d schedules are missing in Temporal and are created again", lost)
            self._compared = time.monotonic()
        for schedule in await schedules.unsynced(self._pool):
            try:
                await self._client.put(schedule)
            except Unavailable:
                return
            except RPCError as error:  # a schedule that Temporal refuses must not hold up the others
                log.error("Temporal refuses the schedule %s: %s", schedule.id, error)
                continue
            await schedules.synced(self._pool, schedule)
