"""Messages of channels: each becomes a session of its address's conversation, or joins a session that still waits."""

from dataclasses import dataclass
from typing import TypedDict

from domain.channels import MAX_DEBOUNCE_MS, Address, ArrivingMessage, ChannelRef, service_id
from domain.content import text_of_parts
from domain.ids import derive_id
from domain.sessions.new_session import NewSession
from domain.sessions.session import SessionRef
from domain.sessions.writes import ThreadMessage
from store import addresses, conversations, files, idempotency, queued_files
from store.addresses import Arrival
from store.database import Connection, Pool
from store.idempotency import StoredResponse
from store.sessions import from_columns


class JoinedMessage(TypedDict):
    message_id: str | None  # the service's own id
    text: str


@dataclass(frozen=True)
class WorkThread:
    thread: str | None  # of the channel; None: in no thread


@dataclass(frozen=True)
class ChannelArrival:
    """An accepted message; `merged` if a session that had not begun also answers other messages."""

    arrival: Arrival
    merged: bool = False
    key_reused: bool = False  # it was refused: another request had its Idempotency-Key

    @property
    def refused(self) -> bool:
        return self.key_reused or self.arrival.refused is not None


async def accept(
    pool: Pool, tenant: str, channel: ChannelRef, message: ArrivingMessage, *, merge: bool = False, wait: bool = False
) -> ChannelArrival:
    """Accept one message. `merge`: it may join the newest waiting session. `wait`: its own session does not begin
    before it is started explicitly, so that others may join it."""
    address = Address.channel(channel.connector, channel.channel_id, channel.user_id)
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        try:
            found = await _accept(connection, tenant, channel, address, message, merge, wait)
        except BaseException:
            await transaction.rollback()
            raise
        # roll back, so that a refused first message leaves no address
        await (transaction.rollback() if found.refused else transaction.commit())
        return found


async def _accept(
    connection: Connection,
    tenant: str,
    channel: ChannelRef,
    address: Address,
    message: ArrivingMessage,
    merge: bool,
    wait: bool,
) -> ChannelArrival:
    conversation_id = await addresses.locked(connection, tenant, address)
    if await key_reused(connection, tenant, message):
        return ChannelArrival(Arrival(), key_reused=True)
    if merge and (joined := await _join(connection, tenant, conversation_id, message)) is not None:
        return ChannelArrival(joined, merged=not joined.duplicate)
    arrival = await addresses.accept_in(connection, tenant, address, message, wait=wait)
    if arrival.session is not None and not arrival.duplicate:
        await connection.execute(
            """INSERT INTO channels (tenant, conversation_id, connector, channel_id, user_id)
               VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING""",
            tenant,
            conversation_id,
            channel.connector,
            channel.channel_id,
            channel.user_id,
        )
    return ChannelArrival(arrival)


async def _join(connection: Connection, tenant: str, conversation_id: str, message: ArrivingMessage) -> Arrival | None:
    """Add the message to the newest session in the queue, which answers in one thread of the channel; None if there is
    none for this thread, or if the key is known."""
    if await addresses.known(connection, tenant, conversation_id, message.key) is not None:
        return None
    row = await connection.fetchrow(
        """SELECT * FROM sessions WHERE tenant = $1 AND thread_id = $2 AND NOT live AND status = 'submitted'
              AND trigger = 'channel' ORDER BY id DESC LIMIT 1 FOR UPDATE""",
        tenant,
        conversation_id,
    )
    if row is None or row["live"] or row["status"] != "submitted":  # it may have begun while we waited for the lock
        return None
    # locked after the session, as everywhere: neither a reset nor the end of the conversation drops it from here on
    generation = await connection.fetchval(
        "SELECT generation FROM conversations WHERE tenant = $1 AND id = $2 AND status = 'open' FOR NO KEY UPDATE",
        tenant,
        conversation_id,
    )
    waiting = from_columns(row)
    if waiting.generation != generation or thread_of(waiting) != thread_of(message.session):
        return None
    message_id = _joined_id(row["id"], message.key)
    await conversations.add_message_in(
        connection,
        tenant,
        ThreadMessage(
            id=message_id,
            conversation_id=conversation_id,
            thread_id=conversation_id,
            text=message.text,
            author=message.author,
            taken_by=row["id"],
            visible=message.visible,
        ),
    )
    await connection.execute(
        "UPDATE sessions SET inbox = inbox || $3::text, updated_at = now() WHERE tenant = $1 AND id = $2",
        tenant,
        row["id"],
        message_id,
    )
    if message.files:
        await queued_files.add(connection, waiting, dict(message.files))
        await files.use_in(connection, tenant, message.session.task.context.files, waiting.id)
    await addresses.remember(connection, tenant, conversation_id, message.key, waiting.id)
    return Arrival(waiting)


async def debounce_left(pool: Pool, ref: SessionRef, debounce_s: float) -> float:
    """The seconds until a debounced session begins: each message that joins it restarts the time, up to the most
    that any may wait."""
    left: float | None = await pool.fetchval(
        """SELECT extract(epoch FROM least(updated_at + make_interval(secs => $3),
                                           created_at + make_interval(secs => $4)) - now())::float8
             FROM sessions WHERE tenant = $1 AND id = $2 AND status = 'submitted' AND NOT live""",
        ref.tenant,
        ref.session_id,
        debounce_s,
        MAX_DEBOUNCE_MS / 1_000,
    )
    return left or 0


async def joined(connection: Connection, tenant: str, session_id: str) -> list[JoinedMessage]:
    """The messages that joined a session, in their order, without the first, which the session's row holds."""
    known = await connection.fetch(
        "SELECT key FROM address_messages WHERE tenant = $1 AND session_id = $2", tenant, session_id
    )
    keys: dict[str, str] = {_joined_id(session_id, row["key"]): row["key"] for row in known}
    rows = await connection.fetch(
        "SELECT id, parts FROM inbox WHERE tenant = $1 AND id = ANY($2::text[]) ORDER BY number", tenant, list(keys)
    )
    return [{"message_id": service_id(keys[row["id"]]), "text": text_of_parts(row["parts"])} for row in rows]


def thread_of(session: NewSession) -> str | None:
    """The thread of the channel in which a session answers."""
    return session.task.channel.thread if session.task.channel else None


def _joined_id(session_id: str, key: str) -> str:
    return derive_id(session_id, "joined", key)


async def add_silent(pool: Pool, tenant: str, conversation_id: str, message: ArrivingMessage) -> ChannelArrival:
    """Store a message that starts nothing; the next session of the conversation reads it first."""
    silent = ThreadMessage(
        id=derive_id(conversation_id, "silent", message.key),
        conversation_id=conversation_id,
        thread_id=conversation_id,
        text=message.text,
        author=message.author,
        visible=message.visible,
        wake=False,
    )
    async with pool.acquire() as connection, connection.transaction():
        if await key_reused(connection, tenant, message):
            return ChannelArrival(Arrival(), key_reused=True)
        return ChannelArrival(Arrival(duplicate=not await conversations.add_message_in(connection, tenant, silent)))


async def key_reused(connection: Connection, tenant: str, message: ArrivingMessage) -> bool:
    """Write the request's Idempotency-Key, and report whether another request had it."""
    record = message.idempotency
    if record is None:
        return False
    given = StoredResponse(digest=record.digest, status=record.status, response=record.response)
    return (await idempotency.reserve(connection, tenant, record.key, given)).digest != record.digest


# for each message of a subagent in a channel: the session that was running when the subagent's work was asked for
_BEGAN = """FROM inbox i
             JOIN channels c ON c.tenant = i.tenant AND c.conversation_id = i.conversation_id
            CROSS JOIN LATERAL (
                SELECT spawned_by FROM sessions s
                 WHERE s.tenant = i.tenant AND s.conversation_id = i.conversation_id
                   AND (s.id = i.source OR (i.kind = 'system' AND s.thread_id = i.author))
                 ORDER BY id DESC LIMIT 1) child
             JOIN sessions began ON began.tenant = i.tenant AND began.id = child.spawned_by"""


async def thread_of_work(pool: Pool, tenant: str, thread_id: str, message_ids: list[str]) -> WorkThread | None:
    """Where the agent `thread_id` was asked for the work that these messages of its subagents report; None if no
    subagent of it sent one."""
    row = await pool.fetchrow(
        f"""SELECT (task.channel).thread AS thread {_BEGAN} AND began.thread_id = $2
            CROSS JOIN LATERAL jsonb_populate_record(NULL::submitted_task, began.spec::jsonb) task
            WHERE i.tenant = $1 AND i.id = ANY($3::text[]) ORDER BY i.number LIMIT 1""",
        tenant,
        thread_id,
        message_ids,
    )
    return WorkThread(**row) if row else None


async def apart(pool: "Pool | Connection", tenant: str, message_ids: list[str]) -> set[str]:
    """Those of the messages to a main thread that report work of another thread of the channel than that of a session
    which has not ended: it would answer them in the wrong place."""
    rows = await pool.fetch(
        f"""SELECT i.id {_BEGAN} AND began.thread_id = i.thread_id
             CROSS JOIN LATERAL jsonb_populate_record(NULL::submitted_task, began.spec::jsonb) work
             JOIN sessions s ON s.tenant = i.tenant AND s.thread_id = i.thread_id
                            AND s.status IN ('submitted', 'working', 'input_required')
             CROSS JOIN LATERAL jsonb_populate_record(NULL::submitted_task, s.spec::jsonb) task
            WHERE i.tenant = $1 AND i.id = ANY($2::text[]) AND i.thread_id = i.conversation_id
              AND (task.channel).thread IS DISTINCT FROM (work.channel).thread""",
        tenant,
        message_ids,
    )
    return {row["id"] for row in rows}


async def of_conversation(pool: Pool, tenant: str, conversation_id: str) -> ChannelRef | None:
    """The connector address to which a conversation's answers are sent."""
    row = await pool.fetchrow(
        "SELECT connector, channel_id, user_id FROM channels WHERE tenant = $1 AND conversation_id = $2",
        tenant,
        conversation_id,
    )
    return ChannelRef(**row) if row else None
