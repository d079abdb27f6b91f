"""deliver: one attempt to send the first notification or reply that waits in a lane. Address and secret
never leave this activity."""

from temporalio import activity

from activities.attempt import send_heartbeats
from activities.notifications.channels import Channel, Envelope
from activities.notifications.response_events import NotDueError, response_event
from connectors.connector import Connector, Outgoing, SenderPorts
from domain.channels import ConnectorKind
from domain.notifications import (
    MOST_PATIENCE,
    AttemptRecord,
    ChannelName,
    DeliveryAttempt,
    DeliveryOutcome,
    DeliveryStatus,
    SendError,
    SubscriptionStatus,
    pause_after,
)
from domain.sealing import KeyRing
from store import deliveries
from store.database import Pool
from store.deliveries import Job


class Deliver:
    def __init__(
        self,
        pool: Pool,
        channels: dict[ChannelName, Channel],
        connectors: dict[ConnectorKind, Connector],
        ports: SenderPorts,
        keys: KeyRing,
    ) -> None:
        self._pool = pool
        self._channels = channels
        self._connectors = connectors
        self._ports = ports
        self._keys = keys

    @activity.defn(name="deliver")
    async def deliver(self, attempt: DeliveryAttempt) -> DeliveryOutcome:
        job = await deliveries.load_first(self._pool, attempt.tenant, attempt.lane, self._keys)
        if job is None:  # the result of an earlier attempt was lost, or it was removed
            return DeliveryOutcome()
        if attempt.asked and job.wait_s > 0:  # there is more to send, but the receiver asked to wait
            return DeliveryOutcome(id=job.id, status=DeliveryStatus.PENDING, wait_s=job.wait_s, asked=True)
        # since it was due: those that waited for another one need not take as long again
        pause = pause_after((attempt.now - job.begun_at).total_seconds(), attempt.span_s)
        if job.connector is None and (job.subscription is not SubscriptionStatus.ACTIVE or job.channel is None):
            state = "is switched off" if job.subscription else "was removed"
            return await self._record(attempt, job, SendError(f"The subscription {state}."), None)
        try:
            async with send_heartbeats():
                await self._send(attempt, job)
        except NotDueError as error:
            return await self._not_due(attempt, job, error, pause)
        except SendError as error:
            return await self._record(attempt, job, error, None if error.gone else pause)
        return await self._record(attempt, job, None, None)

    async def _send(self, attempt: DeliveryAttempt, job: Job) -> None:
        body = job.body.encode()
        if job.connector is not None:
            await self._connectors[job.connector].send(Outgoing(job.id, body, job.secrets), self._ports)
        elif job.channel is not None:
            if job.channel is ChannelName.OPENAI:
                body = await response_event(self._pool, attempt.tenant, job)
            await self._channels[job.channel].send(Envelope(job.id, job.target, body, job.signing))

    async def _not_due(
        self, attempt: DeliveryAttempt, job: Job, error: NotDueError, pause: float | None
    ) -> DeliveryOutcome:
        """Try again later without counting it as a failure, or remove a delivery that has nothing to send."""
        if error.later and pause is not None:
            await deliveries.postpone(self._pool, attempt.tenant, job.id, pause)
            return DeliveryOutcome(id=job.id, status=DeliveryStatus.PENDING, note=str(error), wait_s=pause)
        await deliveries.drop(self._pool, attempt.tenant, job.id)
        return await self._done(attempt, job, DeliveryStatus.FAILED, str(error))

    async def _record(
        self, attempt: DeliveryAttempt, job: Job, error: SendError | None, pause: float | None
    ) -> DeliveryOutcome:
        """Record the result of an attempt; without a pause no other will follow."""
        status = DeliveryStatus.DELIVERED
        if error is not None:
            status = DeliveryStatus.FAILED if pause is None else DeliveryStatus.PENDING
            pause = None if pause is None else max(pause, min(error.retry_after_s, MOST_PATIENCE))
        asked = error is not None and error.retry_after_s > 0
        info = activity.info()
        status = await deliveries.record(
            self._pool,
            AttemptRecord(
                tenant=attempt.tenant,
                id=job.id,
                attempt=f"{info.workflow_run_id}/{info.activity_id}",
                status=status,
                error=str(error)[:500] if error else None,
                gone=error is not None and error.gone,
                pause_s=pause,
            ),
        )
        note = str(error)[:200] if error else ""
        if status is DeliveryStatus.PENDING:
            return DeliveryOutcome(id=job.id, status=status, note=note, wait_s=pause, asked=asked)
        return await self._done(attempt, job, status, note)

    async def _done(self, attempt: DeliveryAttempt, job: Job, status: DeliveryStatus, note: str) -> DeliveryOutcome:
        more = await deliveries.any_waits(self._pool, attempt.tenant, attempt.lane)
        return DeliveryOutcome(id=job.id, status=status, note=note, wait_s=0.0 if more else None)
