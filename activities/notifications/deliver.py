"""deliver: one attempt to send the first notification or reply that waits in a lane. Address and secret never leave
this activity."""

import json
from dataclasses import dataclass

from temporalio import activity

from activities.attempt import send_heartbeats
from activities.notifications.channels import Channel, Envelope
from api.faces.responses.project import Fold, ResponseId, SessionFacts
from connectors.connector import Connector, Outgoing, SenderPorts
from domain.channels import ConnectorKind
from domain.json_object import JsonObject
from domain.notifications import (
    MOST_PATIENCE,
    AttemptRecord,
    ChannelName,
    DeliveryAttempt,
    DeliveryOutcome,
    DeliveryStatus,
    NotificationSubject,
    SendError,
    SubscriptionStatus,
    pause_after,
)
from domain.sealing import KeyRing
from store import events, face_requests, input_requests, notifications, sessions
from store.database import Pool
from store.notifications import Job

FACE = "responses"
PAGE = 1_000


@dataclass
class Deliver:
    _pool: Pool
    _channels: dict[ChannelName, Channel]
    _connectors: dict[ConnectorKind, Connector]
    _ports: SenderPorts
    _keys: KeyRing

    @activity.defn(name="deliver")
    async def deliver(self, attempt: DeliveryAttempt) -> DeliveryOutcome:
        job = await notifications.load_first(self._pool, attempt.tenant, attempt.lane, self._keys)
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
            await self._channels[job.channel](Envelope(job.id, job.target, body, job.signing))

    async def _not_due(
        self, attempt: DeliveryAttempt, job: Job, error: "NotDueError", pause: float | None
    ) -> DeliveryOutcome:
        """Try again later without counting it as a failure, or remove a delivery that has nothing to send."""
        if error.later and pause is not None:
            await notifications.postpone(self._pool, attempt.tenant, job.id, pause)
            return DeliveryOutcome(id=job.id, status=DeliveryStatus.PENDING, note=str(error), wait_s=pause)
        await notifications.drop_delivery(self._pool, attempt.tenant, job.id)
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
        status = await notifications.record_attempt(
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
        more = await notifications.has_waiting(self._pool, attempt.tenant, attempt.lane)
        return DeliveryOutcome(id=job.id, status=status, note=note, wait_s=0.0 if more else None)


# OpenAI's events about background responses: which response a delivery is about, and how it ended. They are derived
# from the session's log when they are sent. The log only grows, so every attempt sends the same bytes.


class NotDueError(Exception):
    """There is nothing to send now. `later`: there may be."""

    def __init__(self, message: str, *, later: bool = False) -> None:
        super().__init__(message)
        self.later = later


async def response_event(pool: Pool, tenant: str, job: Job) -> bytes:
    session = await sessions.get(pool, tenant, job.session_id) if job.session_id else None
    if session is None:
        raise NotDueError("The task was removed.")
    first = (await face_requests.of_session(pool, tenant, FACE, session.id)).get(1)
    fold = Fold(SessionFacts.of(session.id, session.external_tools, first.request if first else None))
    asked: dict[int, int] = {}  # number of a response that waits for its caller -> position of its last request
    after = 0
    while page := await events.without_deltas(pool, tenant, session.id, PAGE, after):
        ids = [event.data["request_id"] for event in page if event.type == "input_required"]
        requests = await input_requests.by_ids(pool, tenant, ids) if ids else {}
        for event in page:
            was_open = bool(fold.parts) and not fold.part.closed
            fold.feed(event, requests)
            if event.type == "input_required" and was_open:
                asked[fold.part.number] = event.seq
        after = page[-1].seq
    if not fold.parts:
        raise NotDueError("The content of the task was removed.")
    number = len(fold.parts)
    if job.event == NotificationSubject.INPUT_REQUIRED:
        # A response that asks for several results waits once; the last of its requests notifies.
        number = next((part for part, seq in asked.items() if seq == job.seq), 0)
        if not number or fold.parts[number - 1].ended:
            raise NotDueError("Another notice is about this response.")
    state = fold.parts[number - 1].state
    if state.completed_at is None:
        raise NotDueError("The response has not ended yet.", later=True)
    about = {"id": str(ResponseId(session.id, number))}
    return _event(job.id, f"response.{state.status}", int(state.completed_at), about)


def _event(delivery_id: str, kind: str, at: int, data: JsonObject) -> bytes:
    event = {"id": f"evt_{delivery_id}", "object": "event", "created_at": at, "type": kind, "data": data}
    return json.dumps(event).encode()
