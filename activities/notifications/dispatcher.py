"""The dispatcher: each worker has one. It starts the workflows that send what is in the outbox."""

import asyncio
import logging
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from domain import wire
from domain.notifications import DeliveryInput
from store import notifications
from store.database import TRANSIENT_ERRORS, Pool
from store.notifications import WaitingDelivery
from workflows.ui import fair_priority

log = logging.getLogger("errand.worker")

PAUSE_SECONDS = 0.5  # between two looks
OVERDUE_SECONDS = 120.0
START_WITHIN = timedelta(seconds=5)


class Dispatcher:
    def __init__(self, pool: Pool, client: Client, task_queue: str, span_s: float) -> None:
        self._pool = pool
        self._client = client
        self._queue = task_queue
        self._span_s = span_s

    async def run(self) -> None:
        """Look at the outbox again and again, until cancelled."""
        while True:
            try:
                await self.dispatch()
            except TRANSIENT_ERRORS:
                pass
            except Exception:  # no error may end this loop: the worker learns of deliveries only here
                log.exception("could not dispatch")
            await asyncio.sleep(PAUSE_SECONDS)

    async def dispatch(self) -> bool:
        """Start all waiting deliveries; False if Temporal is unreachable. The ids of the workflows make a second start
        harmless."""
        while found := await notifications.find_undispatched(self._pool):
            for one in found:
                if not await self._start(one, now=True):
                    return False
                await notifications.mark_dispatched(self._pool, one.tenant, one.id)
        return True

    async def repair(self) -> None:
        """Start the workflows of overdue deliveries again: they were ended from outside."""
        if await self.dispatch():
            for one in await notifications.find_stranded(self._pool, OVERDUE_SECONDS):
                await self._start(one)

    async def _start(self, one: WaitingDelivery, *, now: bool = False) -> bool:
        """Start the workflow of a lane. One that is running continues; with `now` it sends at once, because there is
        something new to send or a caller asked for that."""
        try:
            await self._client.start_workflow(
                wire.NOTIFICATION_DELIVERY,
                DeliveryInput(tenant=one.tenant, lane=one.lane, span_s=self._span_s),
                id=f"delivery/{one.lane}",
                task_queue=self._queue,
                task_timeout=wire.TASK_TIMEOUT,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                start_signal=wire.RESEND if now else None,
                static_summary=f"{one.event} → {one.name}",
                priority=fair_priority(one.tenant),
                rpc_timeout=START_WITHIN,
            )
        except (RPCError, RuntimeError) as error:
            log.warning("delivery %s waits for Temporal (%s)", one.id, type(error).__name__)
            return False
        return True
