"""Messages of channels: each becomes a session of its conversation, joins one that waits, or answers a question."""

from dataclasses import dataclass
from typing import TypedDict

from domain.channels import Address, ArrivingMessage, ChannelRef, service_id
from domain.ids import derive_id
from domain.sessions.new_session import NewSession
from domain.sessions.writes import RequestAnswer, ThreadMessage
from domain.task import text_of_parts
from store import addresses, conversations, files, idempotency, input_requests, sessions, workspaces
from store.addresses import Arrival
from store.database import Connection, Pool, decide, fetch_one
from store.sessions import SessionRow, from_columns


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


async def accept(
    pool: Pool, tenant: str, channel: ChannelRef, message: ArrivingMessage, *, merge: bool = False
) -> ChannelArrival:
    """Accept one message. `merge`: it joins the newest waiting session, or else waits itself until its session is
    started explicitly. Both are decided under the lock of the address: of two messages only one starts a session."""
    address = Address.channel(channel.connector, channel.channel_id, channel.user_id)

    async def take(connection: Connection) -> ChannelArrival:
        conversation_id = await addresses.lock(connection, tenant, address)
        await _reserve_key(connection, tenant, message)
        if merge and (joined := await _join(connection, tenant, conversation_id, message)) is not None:
            return ChannelArrival(joined, merged=not joined.duplicate)
        arrival = await addresses.accept_in(connection, tenant, address, message, wait=merge)
        if arrival.session is not None and not arrival.duplicate:
            sql = """INSERT INTO channels (tenant, conversation_id, connector, channel_id, user_id)
                     VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING"""
            parts = (channel.connector, channel.channel_id, channel.user_id)
            await connection.execute(sql, tenant, conversation_id, *parts)
        return ChannelArrival(arrival)

    # a refused first message leaves no address
    return await decide(pool, take, lambda found: found.arrival.refused is None)


async def _join(connection: Connection, tenant: str, conversation_id: str, message: ArrivingMessage) -> Arrival | None:
    """Add the message to the newest session in the queue, which answers in one thread of the channel; None if there is
    none for this thread, or if the key is known."""
    if await addresses.find_known(connection, tenant, conversation_id, message.key) is not None:
        return None
    sql = """SELECT * FROM sessions WHERE tenant = $1 AND thread_id = $2 AND NOT live AND status = 'submitted'
                AND trigger = 'channel' ORDER BY id DESC LIMIT 1 FOR UPDATE"""
    row = await connection.fetchrow(sql, tenant, conversation_id)
    if row is None or row["live"] or row["status"] != "submitted":  # it may have begun while we waited for the lock
        return None
    # locked after the session, as everywhere: neither a reset nor the end of the conversation drops it from here on
    sql = "SELECT generation FROM conversations WHERE tenant = $1 AND id = $2 AND status = 'open' FOR NO KEY UPDATE"
    generation = await connection.fetchval(sql, tenant, conversation_id)
    waiting = from_columns(**row)
    if waiting.generation != generation or thread_of(waiting) != thread_of(message.session):
        return None
    message_id = _join_ids(row["id"], message.key)
    await conversations.add_message_in(
        connection,
        tenant,
        ThreadMessage(
            id=message_id,
            conversation_id=conversation_id,
            thread_id=conversation_id,
            text=message.text,
            files=message.shown,
            author=message.author,
            taken_by=row["id"],
            visible=message.visible,
        ),
    )
    sql = "UPDATE sessions SET inbox = inbox || $3::text, updated_at = now() WHERE tenant = $1 AND id = $2"
    await connection.execute(sql, tenant, row["id"], message_id)
    if message.files:
        await sessions.add_queued_files(connection, waiting, dict(message.files))
        await files.use_in(connection, tenant, message.session.task.context.files, waiting.id)
    await addresses.remember(connection, tenant, conversation_id, message.key, waiting.id)
    return Arrival(waiting)


async def find_joined(connection: Connection, tenant: str, session_id: str) -> list[JoinedMessage]:
    """The messages that joined a session, in their order, without the first, which the session's row holds."""
    sql = "SELECT key FROM address_messages WHERE tenant = $1 AND session_id = $2"
    known = await connection.fetch(sql, tenant, session_id)
    keys: dict[str, str] = {_join_ids(session_id, row["key"]): row["key"] for row in known}
    sql = "SELECT id, parts FROM inbox WHERE tenant = $1 AND id = ANY($2::text[]) ORDER BY number"
    rows = await connection.fetch(sql, tenant, list(keys))
    return [{"message_id": service_id(keys[row["id"]]), "text": text_of_parts(row["parts"])} for row in rows]


def thread_of(session: NewSession) -> str | None:
    """The thread of the channel in which a session answers."""
    return session.task.channel.thread if session.task.channel else None


def _join_ids(session_id: str, key: str) -> str:
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
        await _reserve_key(connection, tenant, message)
        return ChannelArrival(Arrival(duplicate=not await conversations.add_message_in(connection, tenant, silent)))


async def _reserve_key(connection: Connection, tenant: str, message: ArrivingMessage) -> None:
    if message.idempotency is not None:
        await idempotency.reserve(connection, tenant, message.idempotency)


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
    sql = f"""SELECT (task.channel).thread AS thread {_BEGAN} AND began.thread_id = $2
              CROSS JOIN LATERAL jsonb_populate_record(NULL::submitted_task, began.spec::jsonb) task
              WHERE i.tenant = $1 AND i.id = ANY($3::text[]) ORDER BY i.number LIMIT 1"""
    return await fetch_one(pool, WorkThread, sql, tenant, thread_id, message_ids)


async def find_apart(pool: "Pool | Connection", tenant: str, message_ids: list[str]) -> set[str]:
    """Those of the messages to a main thread that report work of another thread of the channel than that of a session
    which has not ended: it would answer them in the wrong place."""
    sql = f"""SELECT i.id {_BEGAN} AND began.thread_id = i.thread_id
               CROSS JOIN LATERAL jsonb_populate_record(NULL::submitted_task, began.spec::jsonb) work
               JOIN sessions s ON s.tenant = i.tenant AND s.thread_id = i.thread_id
                              AND s.status IN ('submitted', 'working', 'input_required')
               CROSS JOIN LATERAL jsonb_populate_record(NULL::submitted_task, s.spec::jsonb) task
              WHERE i.tenant = $1 AND i.id = ANY($2::text[]) AND i.thread_id = i.conversation_id
                AND (task.channel).thread IS DISTINCT FROM (work.channel).thread"""
    return {row["id"] for row in await pool.fetch(sql, tenant, message_ids)}


async def of_conversation(pool: Pool, tenant: str, conversation_id: str) -> ChannelRef | None:
    """The connector address to which a conversation's answers are sent."""
    sql = "SELECT connector, channel_id, user_id FROM channels WHERE tenant = $1 AND conversation_id = $2"
    return await fetch_one(pool, ChannelRef, sql, tenant, conversation_id)


# Questions of agents that people answer by a message in their channel.


async def find_open_question(
    pool: "Pool | Connection", tenant: str, address: Address, thread: str | None
) -> str | None:
    """The oldest open question that was sent to this address and thread. One that was sent to no thread can be answered
    from any."""
    sql = """SELECT r.id FROM addresses a
               JOIN conversations v ON v.tenant = a.tenant AND v.id = a.conversation_id
               JOIN input_requests r ON r.tenant = a.tenant AND r.conversation_id = v.id
                                    AND r.status = 'open' AND r.kind = 'clarification'
               JOIN sessions s ON s.tenant = r.tenant AND s.id = r.session_id AND s.generation = v.generation
                              AND s.cancel_requested IS NULL
              CROSS JOIN LATERAL jsonb_populate_record(NULL::submitted_task, s.spec::jsonb) task
              WHERE a.tenant = $1 AND a.kind = $2 AND a.key = $3
                AND coalesce((task.channel).thread, $4) IS NOT DISTINCT FROM $4
              ORDER BY r.created_at, r.id LIMIT 1"""
    found: str | None = await pool.fetchval(sql, tenant, address.kind, address.key, thread)
    return found


async def answer_question(
    pool: Pool, address: Address, message: ArrivingMessage, session: SessionRow, written: RequestAnswer
) -> ChannelArrival | None:
    """Let a message answer a question of `session`, once, under the lock of its address. Its files enter the
    workspace. A repetition gets the earlier result. None if the question was settled in the meantime: the message is
    then one like any other."""
    tenant = session.tenant

    async def settle(connection: Connection) -> ChannelArrival | None:
        await addresses.lock(connection, tenant, address)
        await _reserve_key(connection, tenant, message)
        known = await addresses.find_known(connection, tenant, session.conversation_id, message.key)
        if known is not None:
            return ChannelArrival(Arrival(known, duplicate=True))
        # looked at again under the lock: it may have expired, or a reset may have withdrawn it
        if await find_open_question(connection, tenant, address, thread_of(message.session)) != written.id:
            return None
        if message.files:
            given = dict(message.files)
            await workspaces.change_in(connection, tenant, session.workspace_id, lambda known: {**known, **given})
            await files.use_in(connection, tenant, message.session.task.context.files, session.id)
        if await input_requests.answer(connection, written) is not None:
            return None
        await addresses.remember(connection, tenant, session.conversation_id, message.key, session.id)
        return ChannelArrival(Arrival(session))

    return await decide(pool, settle, lambda found: found is not None)
