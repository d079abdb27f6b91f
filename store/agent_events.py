"""Events between the agents of a tenant: the subscriptions, and an event with all the messages that it causes."""

from collections.abc import Sequence
from dataclasses import dataclass

from domain.conversations.requests import InboxKind
from domain.ids import derive_id
from domain.missions import HoldKind
from domain.sessions.writes import ThreadMessage
from domain.triggers import EMITTED, EventOutcome, covers
from store import conversations, mission_admission
from store.database import Connection, Pool
from store.event_waits import Answered, answer_wait
from store.external_events import NewEvent, decided, insert, lock
from store.sessions import SessionRow

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


async def emit(pool: Pool, sender: SessionRow, event: NewEvent, per_hour: int) -> Emitted | None:
    """Deliver an agent's event to those who wait for it or subscribed to it, but never to the agent itself. The same
    event is delivered once. None: the conversation has emitted as many events as it may in an hour."""
    tenant = sender.tenant
    async with pool.acquire() as connection, connection.transaction():
        sent = await connection.fetchval(
            """SELECT count(*) FROM external_events WHERE tenant = $1 AND source = $2 AND conversation_id = $3
                  AND created_at > now() - interval '1 hour'""",
            tenant,
            EMITTED,
            sender.conversation_id,
        )
        if sent >= per_hour:
            return None
        if not await insert(connection, tenant, event):
            return Emitted(None)
        answered = await answer_wait(connection, tenant, event, sender.thread_id)
        outcome = EventOutcome.KEPT if answered is None else EventOutcome.DELIVERED
        await decided(connection, tenant, event, outcome, (sender.id, sender.conversation_id))
        messages = []
        for conversation_id, thread_id in await _subscribers(connection, tenant, event.type, sender.thread_id):
            hold = None
            if conversation_id != sender.conversation_id:
                hold = await mission_admission.wake_hold(connection, tenant, conversation_id, thread_id)
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
        await lock(connection, session.tenant, f"subscriptions of {session.thread_id}")
        known = await patterns(connection, session)
        if pattern in known:
            return True
        if len(known) >= MAX_PATTERNS:
            return False
        await connection.execute(
            "INSERT INTO event_subscriptions (tenant, thread_id, pattern, conversation_id) VALUES ($1, $2, $3, $4)",
            session.tenant,
            session.thread_id,
            pattern,
            session.conversation_id,
        )
        return True


async def unsubscribe(pool: Pool, session: SessionRow, pattern: str) -> None:
    await pool.execute(
        "DELETE FROM event_subscriptions WHERE tenant = $1 AND thread_id = $2 AND pattern = $3",
        session.tenant,
        session.thread_id,
        pattern,
    )


async def patterns(pool: "Pool | Connection", session: SessionRow) -> list[str]:
    rows = await pool.fetch(
        "SELECT pattern FROM event_subscriptions WHERE tenant = $1 AND thread_id = $2 ORDER BY pattern",
        session.tenant,
        session.thread_id,
    )
    return [row["pattern"] for row in rows]


async def _subscribers(connection: Connection, tenant: str, name: str, except_thread: str) -> list[tuple[str, str]]:
    """Conversation and thread of the agents that subscribed to an event, each once, if their conversation is open."""
    rows = await connection.fetch(
        """SELECT s.thread_id, s.conversation_id, s.pattern FROM event_subscriptions s
             JOIN conversations c ON c.tenant = s.tenant AND c.id = s.conversation_id
            WHERE s.tenant = $1 AND s.thread_id <> $2 AND c.status = 'open' ORDER BY s.created_at""",
        tenant,
        except_thread,
    )
    found = {row["thread_id"]: row["conversation_id"] for row in rows if covers(row["pattern"], name)}
    return [(conversation_id, thread_id) for thread_id, conversation_id in found.items()][:MAX_RECEIVERS]
