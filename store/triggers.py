"""Triggers and events: their rows, waits for an event, and what an event of a trigger or of an agent leads to."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import asyncpg
from errand.models import EventAccepted

from domain.channels import Address, ArrivingMessage
from domain.conversations.requests import InboxKind
from domain.events import EventRow, InputReceived
from domain.ids import derive_id, new_id
from domain.missions import Hold, HoldKind
from domain.sealing import KeyRing
from domain.sessions.input_request import RequestKind, RequestStatus
from domain.sessions.new_session import NewSession, Trigger
from domain.sessions.session import SessionRef
from domain.sessions.writes import RequestAnswer, RequestOpening, ThreadMessage
from domain.triggers import (
    EMITTED,
    EventOutcome,
    EventTrigger,
    TriggerContext,
    TriggerRules,
    covers,
)
from store import addresses, audit, conversations, input_requests, missions
from store.database import Connection, Pool, decide, fetch_all
from store.input_requests import OpenedRow
from store.sessions import Accepted, SessionRow

SEALED_FOR = "trigger"
_COLUMNS = ", ".join(EventTrigger.model_fields)


@dataclass(frozen=True)
class SignedTrigger:
    trigger: EventTrigger
    secret: str = field(repr=False)


async def put_trigger(
    pool: Pool,
    tenant: str,
    name: str,
    rules: TriggerRules,
    session: NewSession | None,
    prompt: str,
    secret: str,
    by: str,
    keys: KeyRing,
) -> EventTrigger:
    """Create a trigger, or change the one with this name, which keeps its id and its conversations."""
    sql = f"""INSERT INTO triggers (tenant, id, name, rules, session, prompt, secret, created_by)
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
              ON CONFLICT (tenant, name) WHERE deleted_at IS NULL
              DO UPDATE SET rules = $4, session = $5, prompt = $6, secret = $7
              RETURNING {_COLUMNS}"""
    given = rules.model_dump_json(exclude_unset=True)
    run = session.model_dump_json(exclude_defaults=True) if session else None
    values = (new_id(), name, given, run, prompt, keys.seal(secret, tenant, SEALED_FOR, name), by)
    row = await audit.change(pool, tenant, by, "put_trigger", sql, *values, inputs=rules.model_dump_json())
    assert row is not None
    return EventTrigger(**row)


async def find_trigger(pool: Pool, tenant: str, name: str, keys: KeyRing) -> SignedTrigger | None:
    sql = "SELECT * FROM triggers WHERE tenant = $1 AND name = $2 AND deleted_at IS NULL"
    row = await pool.fetchrow(sql, tenant, name)
    return _read_signed(row, keys) if row else None


async def find_receiver(pool: Pool, name: str, keys: KeyRing) -> SignedTrigger | None:
    """The trigger that an event without an API key addresses: by its id, or by its name in the default tenant."""
    row = await pool.fetchrow("SELECT * FROM find_trigger($1)", name)
    return _read_signed(row, keys) if row else None


async def list_triggers(pool: Pool, tenant: str) -> list[EventTrigger]:
    sql = f"SELECT {_COLUMNS} FROM triggers WHERE tenant = $1 AND deleted_at IS NULL ORDER BY name"
    return await fetch_all(pool, EventTrigger, sql, tenant)


async def remove_trigger(pool: Pool, tenant: str, name: str, by: str) -> None:
    """Delete a trigger; its conversations stay."""
    sql = """UPDATE triggers SET deleted_at = now(), secret = '' WHERE tenant = $1 AND name = $2
                AND deleted_at IS NULL RETURNING name"""
    await audit.change(pool, tenant, by, "remove_trigger", sql, name)


def _read_signed(row: asyncpg.Record, keys: KeyRing) -> SignedTrigger:
    return SignedTrigger(EventTrigger(**row), keys.unseal(row["secret"], row["tenant"], SEALED_FOR, row["name"]))


# Rows of external events: each is written once, then decided. A lock on the key orders an event and a wait for it.


@dataclass(frozen=True)
class NewEvent:
    """An event before it is stored. `source` is the id of its trigger; a wait may name its `origin`."""

    source: str
    origin: str
    event_id: str
    type: str
    key: str | None
    text: str  # what an agent reads


async def insert_event(connection: Connection, tenant: str, event: NewEvent) -> bool:
    """Write an event; False if it is known. A concurrent repetition waits here until the first one is decided."""
    if event.key is not None:
        await lock_key(connection, tenant, event.key)
    sql = """INSERT INTO external_events (tenant, source, event_id, type, key, body) VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT DO NOTHING RETURNING 1"""
    made = await connection.fetchval(sql, tenant, event.source, event.event_id, event.type, event.key, event.text)
    return made is not None


async def get_known(connection: Connection, tenant: str, event: NewEvent) -> EventAccepted:
    sql = """SELECT event_id, outcome, session_id, conversation_id FROM external_events
              WHERE tenant = $1 AND source = $2 AND event_id = $3"""
    row = await connection.fetchrow(sql, tenant, event.source, event.event_id)
    assert row is not None
    return EventAccepted(**row)


async def record_decision(
    connection: Connection,
    tenant: str,
    event: NewEvent,
    outcome: EventOutcome,
    whose: tuple[str, str] | None = None,
) -> EventAccepted:
    """Store the decision. `whose`: the session that received the event, and its conversation."""
    session_id, conversation_id = whose or (None, None)
    sql = """UPDATE external_events SET outcome = $4, session_id = $5, conversation_id = $6,
                                        body = CASE WHEN $4 = 'kept' THEN body END
              WHERE tenant = $1 AND source = $2 AND event_id = $3"""
    await connection.execute(sql, tenant, event.source, event.event_id, outcome, session_id, conversation_id)
    return EventAccepted(
        event_id=event.event_id, outcome=outcome.value, session_id=session_id, conversation_id=conversation_id
    )


async def forget_old_events(pool: Pool, days: int) -> None:
    """Delete events that are too old for their senders to repeat. Those of GitHub stay as long as their trigger, though
    no wait gets them: GitHub signs no time, so that only the row shows that an old event is sent again."""
    unsigned = """SELECT 1 FROM triggers t WHERE t.tenant = e.tenant AND t.id = e.source AND t.deleted_at IS NULL
                     AND t.rules::jsonb ->> 'signature' = 'github'"""
    old = "e.created_at < now() - make_interval(days => $1)"
    await pool.execute(f"DELETE FROM external_events e WHERE {old} AND NOT EXISTS ({unsigned})", days)
    await pool.execute(f"UPDATE external_events e SET key = NULL, body = NULL WHERE {old} AND key IS NOT NULL", days)


async def lock_key(connection: Connection, tenant: str, key: str) -> None:
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"{tenant}\n{key}")


# Sessions that wait for an event by its key: each wait is an input request that the event answers.


@dataclass(frozen=True)
class Answered:
    """A wait whose event has arrived. Its session is signalled after the transaction, or by a sweep."""

    session_id: str
    conversation_id: str
    request_id: str

    @property
    def whose(self) -> tuple[str, str]:
        return self.session_id, self.conversation_id


@dataclass(frozen=True)
class OpenedWait:
    """A wait that was opened; or `held_by`, the session that already waits for this key."""

    opened: OpenedRow | None = None
    held_by: str | None = None


async def open_wait(pool: Pool, opening: RequestOpening, origin: str | None, since: datetime) -> OpenedWait:
    """Open a wait for a key. An event that arrived since the session began and that no session received answers it at
    once."""
    tenant, request = opening.tenant, opening.request
    assert request.event_key is not None
    async with pool.acquire() as connection, connection.transaction():
        await lock_key(connection, tenant, request.event_key)
        sql = """SELECT session_id FROM input_requests
                  WHERE tenant = $1 AND event_key = $2 AND status = 'open' AND id <> $3"""
        held_by: str | None = await connection.fetchval(sql, tenant, request.event_key, request.id)
        if held_by is not None:
            return OpenedWait(held_by=held_by)
        opened = await input_requests.open_request(connection, opening)
        if opened is None or opened.status is not RequestStatus.OPEN:
            return OpenedWait(opened)
        sql = """SELECT source, event_id, type, key, body FROM external_events e
                  WHERE tenant = $1 AND key = $2 AND outcome = 'kept' AND created_at >= $3
                    AND session_id IS DISTINCT FROM $5
                    AND ($4::text IS NULL OR EXISTS (SELECT 1 FROM triggers t
                                                      WHERE t.tenant = e.tenant AND t.id = e.source AND t.name = $4))
                  ORDER BY created_at LIMIT 1 FOR UPDATE"""
        row = await connection.fetchrow(sql, tenant, request.event_key, since, origin, request.session_id)
        if row is not None:
            event = NewEvent(row["source"], "", row["event_id"], row["type"], row["key"], row["body"])
            waiting = Answered(request.session_id, request.conversation_id, request.id)
            await _answer(connection, tenant, event, waiting)
            await record_decision(connection, tenant, event, EventOutcome.DELIVERED, waiting.whose)
            opened = opened.model_copy(update={"status": RequestStatus.ANSWERED})
        return OpenedWait(opened)


async def answer_wait(
    connection: Connection, tenant: str, event: NewEvent, except_thread: str | None = None
) -> Answered | None:
    if event.key is None:
        return None
    sql = """SELECT r.id, r.session_id, r.conversation_id, r.details FROM input_requests r
               JOIN sessions s ON s.tenant = r.tenant AND s.id = r.session_id
              WHERE r.tenant = $1 AND r.event_key = $2 AND r.status = 'open' AND s.thread_id IS DISTINCT FROM $3"""
    row: asyncpg.Record | None = await connection.fetchrow(sql, tenant, event.key, except_thread)
    if row is None:
        return None
    wanted: dict[str, Any] = json.loads(row["details"])
    if wanted.get("trigger") not in (None, event.origin):
        return None
    waiting = Answered(row["session_id"], row["conversation_id"], row["id"])
    return waiting if await _answer(connection, tenant, event, waiting) else None


async def _answer(connection: Connection, tenant: str, event: NewEvent, waiting: Answered) -> bool:
    """Answer a wait with its event; False if the wait has ended by now."""
    ref = SessionRef(tenant=tenant, session_id=waiting.session_id, conversation_id=waiting.conversation_id)
    received = InputReceived(request_id=waiting.request_id, kind=RequestKind.EXTERNAL_EVENT, by=event.source)
    given = RequestAnswer(
        tenant=tenant,
        id=waiting.request_id,
        session_id=waiting.session_id,
        answer=json.dumps({"text": event.text}),
        by=event.origin or event.source,
        events=[EventRow.of(ref, received)],
    )
    return await input_requests.answer(connection, given) is None


# Events of triggers. Each is decided once, in one transaction: it answers a wait for its key, or becomes a message.


@dataclass(frozen=True)
class Receipt:
    """The result of an event: what the caller must still start or signal; or the reason why nothing was written, in
    `refused` or, if its mission held it back, in `held`."""

    accepted: EventAccepted | None = None
    session: SessionRow | None = None
    answered: Answered | None = None
    refused: Accepted | None = None
    held: Hold | None = None


async def receive(pool: Pool, trigger: EventTrigger, event: NewEvent, message: ArrivingMessage | None) -> Receipt:
    """Decide on a trigger's event; `message` is used if no session waits for the event. If it is None the event is
    kept, or filtered if it has no key."""
    return await decide(
        pool,
        lambda connection: _receive(connection, trigger, event, message),
        lambda receipt: receipt.accepted is not None,  # a refused event leaves no trace: its sender can send it again
    )


async def _receive(
    connection: Connection, trigger: EventTrigger, event: NewEvent, message: ArrivingMessage | None
) -> Receipt:
    tenant = trigger.tenant
    if not await insert_event(connection, tenant, event):
        return Receipt(await get_known(connection, tenant, event))
    answered = await answer_wait(connection, tenant, event)
    if answered is not None:
        return Receipt(
            await record_decision(connection, tenant, event, EventOutcome.DELIVERED, answered.whose), answered=answered
        )
    if message is None:
        outcome = EventOutcome.KEPT if event.key is not None else EventOutcome.FILTERED
        return Receipt(await record_decision(connection, tenant, event, outcome))
    address, named = _address(trigger, event)
    if named is not None:
        admitted = await _admit(connection, tenant, named, message)
        if isinstance(admitted, Hold):
            return Receipt(held=admitted)
        message = admitted
    await addresses.lock(connection, tenant, address, named)
    arrival = await addresses.accept_in(connection, tenant, address, message)
    if arrival.session is None:
        return Receipt(refused=arrival.refused)
    whose = arrival.session.id, arrival.session.conversation_id
    accepted = await record_decision(connection, tenant, event, EventOutcome.ACCEPTED, whose)
    return Receipt(accepted, session=None if arrival.duplicate else arrival.session)


async def _admit(
    connection: Connection, tenant: str, conversation_id: str, message: ArrivingMessage
) -> ArrivingMessage | Hold:
    """Apply a mission's pauses, budgets and risks to its events, as they apply to its ticks."""
    mission = await missions.of_conversation(connection, tenant, conversation_id, lock=True)
    if mission is None:
        return message
    admitted = await missions.admit(connection, mission, conversation_id)
    if isinstance(admitted, Hold):
        return admitted
    session = missions.mark_session(message.session, mission)
    return message.model_copy(update={"session": session, "budget": admitted})


def _address(trigger: EventTrigger, event: NewEvent) -> tuple[Address, str | None]:
    rules = trigger.rules
    if rules.context is TriggerContext.ISOLATED:
        return Address.trigger(trigger.id, "event", event.event_id), None
    if rules.context is TriggerContext.PER_KEY and event.key is not None:
        return Address.trigger(trigger.id, "key", event.key), None
    named = rules.conversation_id
    return (Address.trigger(trigger.id, "conversation", named) if named else Address.trigger(trigger.id)), named


def arriving_message(trigger: EventTrigger, event: NewEvent, prompt: str) -> ArrivingMessage | None:
    """The message for an event; None if the trigger has no task."""
    if trigger.session is None:
        return None
    session = trigger.session.model_copy(update={"trigger": Trigger.EVENT})
    text = f"{prompt}\n\n{event.text}"
    return ArrivingMessage(
        key=f"{trigger.id}:{event.event_id}", text=text, author=f"trigger {trigger.name}", session=session
    )


# Events between the agents of a tenant: the subscriptions, and an event with all the messages that it causes.


MAX_RECEIVERS = 200  # of one event
MAX_PATTERNS = 20  # that one agent subscribes to


@dataclass(frozen=True)
class SentMessage:
    conversation_id: str
    thread_id: str
    message_id: str
    wake: bool = True  # false: the receiver's mission may not run now, and its next run reads it


@dataclass(frozen=True)
class Emitted:
    receivers: int | None  # None: the event was emitted before
    messages: Sequence[SentMessage] = ()  # written now; the caller signals their conversations
    answered: Answered | None = None


async def emit_event(pool: Pool, sender: SessionRow, event: NewEvent, per_hour: int) -> Emitted | None:
    """Deliver an agent's event to those who wait for it or subscribed to it, but never to the agent itself. The same
    event is delivered once. None: the conversation has emitted as many events as it may in an hour."""
    tenant = sender.tenant
    async with pool.acquire() as connection, connection.transaction():
        sql = """SELECT count(*) FROM external_events WHERE tenant = $1 AND source = $2 AND conversation_id = $3
                    AND created_at > now() - interval '1 hour' AND event_id <> $4"""  # a repetition counts no more
        sent = await connection.fetchval(sql, tenant, EMITTED, sender.conversation_id, event.event_id)
        if sent >= per_hour:
            return None
        if not await insert_event(connection, tenant, event):
            return Emitted(None)
        answered = await answer_wait(connection, tenant, event, sender.thread_id)
        outcome = EventOutcome.KEPT if answered is None else EventOutcome.DELIVERED
        await record_decision(connection, tenant, event, outcome, (sender.id, sender.conversation_id))
        messages = []
        for conversation_id, thread_id in await _subscribers(connection, tenant, event.type, sender.thread_id):
            hold = None
            if conversation_id != sender.conversation_id:
                hold = await missions.find_wake_hold(connection, tenant, conversation_id, thread_id)
            if hold is None or hold.kind is not HoldKind.ENDED:
                message_id = derive_id(event.event_id, thread_id)
                messages.append(SentMessage(conversation_id, thread_id, message_id, wake=hold is None))
        for one in messages:
            message = ThreadMessage(
                id=one.message_id,
                conversation_id=one.conversation_id,
                thread_id=one.thread_id,
                text=event.text,
                kind=InboxKind.SYSTEM,
                author=sender.thread_id,
                unsignalled=one.wake,
                wake=one.wake,
            )
            await conversations.add_message_in(connection, tenant, message)
        return Emitted(len(messages) + (answered is not None), messages, answered)


async def subscribe(pool: Pool, session: SessionRow, pattern: str) -> bool:
    """Subscribe an agent to a pattern; False if it already subscribed to as many as it may."""
    async with pool.acquire() as connection, connection.transaction():
        await lock_key(connection, session.tenant, f"subscriptions of {session.thread_id}")
        known = await list_patterns(connection, session)
        if pattern in known:
            return True
        if len(known) >= MAX_PATTERNS:
            return False
        sql = "INSERT INTO event_subscriptions (tenant, thread_id, pattern, conversation_id) VALUES ($1, $2, $3, $4)"
        await connection.execute(sql, session.tenant, session.thread_id, pattern, session.conversation_id)
        return True


async def unsubscribe(pool: Pool, session: SessionRow, pattern: str) -> None:
    sql = "DELETE FROM event_subscriptions WHERE tenant = $1 AND thread_id = $2 AND pattern = $3"
    await pool.execute(sql, session.tenant, session.thread_id, pattern)


async def list_patterns(pool: "Pool | Connection", session: SessionRow) -> list[str]:
    sql = "SELECT pattern FROM event_subscriptions WHERE tenant = $1 AND thread_id = $2 ORDER BY pattern"
    return [row["pattern"] for row in await pool.fetch(sql, session.tenant, session.thread_id)]


async def _subscribers(connection: Connection, tenant: str, name: str, except_thread: str) -> list[tuple[str, str]]:
    """Conversation and thread of the agents that subscribed to an event, each once, if their conversation is open."""
    sql = """SELECT s.thread_id, s.conversation_id, s.pattern FROM event_subscriptions s
               JOIN conversations c ON c.tenant = s.tenant AND c.id = s.conversation_id
              WHERE s.tenant = $1 AND s.thread_id <> $2 AND c.status = 'open' ORDER BY s.created_at"""
    rows = await connection.fetch(sql, tenant, except_thread)
    found = {row["thread_id"]: row["conversation_id"] for row in rows if covers(row["pattern"], name)}
    return [(conversation_id, thread_id) for thread_id, conversation_id in found.items()][:MAX_RECEIVERS]
