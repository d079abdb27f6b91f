"""deliver: one attempt to send one notification to one subscription. Address and secret never leave this activity."""

from temporalio import activity

from activities.notifications.channels.channel import Channel, Envelope
from activities.notifications.response_events import NotDueError, response_event
from activities.runtime.heartbeat import heartbeating
from connectors.connector import Connector, Outgoing, SenderPorts
from domain.channels import ConnectorKind
from domain.notification import (
    MOST_PATIENCE,
    AttemptRecord,
    ChannelName,
    DeliveryAttempt,
    DeliveryOutcome,
    DeliveryStatus,
    SendError,
    SubscriptionStatus,
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
        job = await deliveries.load(self._pool, attempt.tenant, attempt.id, self._keys)
        if job is None:
            return DeliveryOutcome(status=DeliveryStatus.FAILED, note="Its record was removed.")
        if job.status is not DeliveryStatus.PENDING:  # the result of an earlier attempt was lost
            return DeliveryOutcome(status=job.status)
        if job.connector is None and (job.subscription is not SubscriptionStatus.ACTIVE or job.channel is None):
            state = "is switched off" if job.subscription else "was removed"
            return await self._record(attempt, SendError(f"The subscription {state}."), final=True)
        try:
            async with heartbeating():
                await self._send(attempt, job)
        except NotDueError as error:
            return await self._not_due(attempt, error)
        except SendError as error:
            return await self._record(attempt, error, final=error.gone or attempt.pause_s is None)
        return await self._record(attempt, None)

    async def _send(self, attempt: DeliveryAttempt, job: Job) -> None:
        body = job.body.encode()
        if job.connector is not None:
            await self._connectors[job.connector].send(Outgoing(attempt.id, body, job.secrets), self._ports)
        elif job.channel is not None:
            if job.channel is ChannelName.OPENAI:
                body = await response_event(self._pool, attempt.tenant, attempt.id, job)
            await self._channels[job.channel].send(Envelope(attempt.id, job.target, body, job.signing))

    async def _not_due(self, attempt: DeliveryAttempt, error: NotDueError) -> DeliveryOutcome:
        """Try again later without counting it as a failure, or remove a delivery that has nothing to send."""
        if error.later and attempt.pause_s is not None:
            await deliveries.postpone(self._pool, attempt.tenant, attempt.id, attempt.pause_s)
            return DeliveryOutcome(status=DeliveryStatus.PENDING, note=str(error), wait_s=attempt.pause_s)
        await deliveries.drop(self._pool, attempt.tenant, attempt.id)
        return DeliveryOutcome(status=DeliveryStatus.FAILED, note=str(error))

    async def _record(
        self, attempt: DeliveryAttempt, error: SendError | None, *, final: bool = False
    ) -> DeliveryOutcome:
        """Record the result of an attempt; `final` if no other will follow."""
        status = DeliveryStatus.DELIVERED if error is None else DeliveryStatus.PENDING
        wait = max(attempt.pause_s or 0.0, min(error.retry_after_s, MOST_PATIENCE)) if error else 0.0
        info = activity.info()
        status = await deliveries.record(
            self._pool,
            AttemptRecord(
                tenant=attempt.tenant,
                id=attempt.id,
                attempt=f"{info.workflow_run_id}/{info.activity_id}",
                status=DeliveryStatus.FAILED if final else status,
                error=str(error)[:500] if error else None,
                gone=error is not None and error.gone,
                pause_s=None if final or error is None else wait,
            ),
        )
        return DeliveryOutcome(status=status, note=str(error)[:200] if error else "", wait_s=wait)
