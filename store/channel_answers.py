"""Questions of agents that people answer by a message in their channel."""

from domain.channels import REPLY, Address, ArrivingMessage
from domain.ids import derive_id
from domain.sessions.writes import RequestAnswer
from store import addresses, channels, files, input_requests, workspaces
from store.addresses import Arrival
from store.channels import ChannelArrival
from store.database import Connection, Pool
from store.sessions import SessionRow


async def open_question(pool: "Pool | Connection", tenant: str, address: Address, thread: str | None) -> str | None:
    """The oldest open question that was sent to this address and thread. One that was sent to no thread can be answered
    from any."""
    found: str | None = await pool.fetchval(
        """SELECT r.id FROM addresses a
             JOIN conversations v ON v.tenant = a.tenant AND v.id = a.conversation_id
             JOIN input_requests r ON r.tenant = a.tenant AND r.conversation_id = v.id
                                  AND r.status = 'open' AND r.kind = 'clarification'
             JOIN sessions s ON s.tenant = r.tenant AND s.id = r.session_id AND s.generation = v.generation
                            AND s.cancel_requested IS NULL
            CROSS JOIN LATERAL jsonb_populate_record(NULL::submitted_task, s.spec::jsonb) task
            WHERE a.tenant = $1 AND a.kind = $2 AND a.key = $3
              AND coalesce((task.channel).thread, $4) IS NOT DISTINCT FROM $4
            ORDER BY r.created_at, r.id LIMIT 1""",
        tenant,
        address.kind,
        address.key,
        thread,
    )
    return found


class _Settled(Exception):
    """Rolls the transaction back: the question no longer waits for an answer."""


async def answer(
    pool: Pool, address: Address, message: ArrivingMessage, session: SessionRow, written: RequestAnswer
) -> ChannelArrival | None:
    """Let a message answer a question of `session`, once. Its files enter the workspace. None if the question was
    settled in the meantime: the message is then one like any other."""
    try:
        async with pool.acquire() as connection, connection.transaction():
            if (before := await _before(connection, session, address, message)) is not None:
                return before
            if not await _still_open(connection, session, address, message, written.id):
                raise _Settled
            if message.files:
                given = dict(message.files)
                await workspaces.change_in(
                    connection, session.tenant, session.workspace_id, lambda known: {**known, **given}
                )
                await files.use_in(connection, session.tenant, message.session.task.context.files, session.id)
            if await input_requests.answer(connection, written) is not None:
                raise _Settled
            await addresses.remember(connection, session.tenant, session.conversation_id, message.key, session.id)
    except _Settled:
        return None
    return ChannelArrival(Arrival(session))


async def reject(
    pool: Pool, address: Address, message: ArrivingMessage, session: SessionRow, request_id: str, text: str
) -> ChannelArrival | None:
    """Record that a message does not answer a question, and send this text to its person. None if the question was
    settled in the meantime: the message is then one like any other."""
    try:
        async with pool.acquire() as connection, connection.transaction():
            if (before := await _before(connection, session, address, message)) is not None:
                return before
            if not await _still_open(connection, session, address, message, request_id):
                raise _Settled
            await addresses.remember(connection, session.tenant, session.conversation_id, message.key, session.id)
            await connection.execute(
                """INSERT INTO deliveries (tenant, id, subscription_id, conversation_id, event, session_id, body)
                   SELECT c.tenant, $3, k.id, c.conversation_id, $4, $5,
                          jsonb_build_object('type', $4::text, 'timestamp', now(), 'data', jsonb_build_object(
                              'connector', c.connector, 'channel_id', c.channel_id, 'user_id', c.user_id,
                              'thread', $6::text, 'in_reply_to', $7::text, 'conversation_id', c.conversation_id,
                              'task_id', $5::text, 'text', $8::text))::text
                     FROM channels c JOIN connectors k ON k.tenant = c.tenant AND k.name = c.connector
                    WHERE c.tenant = $1 AND c.conversation_id = $2 AND (k.kind <> 'webhook' OR k.target <> '')
                   ON CONFLICT DO NOTHING""",
                session.tenant,
                session.conversation_id,
                derive_id(request_id, "rejected", message.key),
                REPLY,
                session.id,
                channels.thread_of(message.session),
                message.session.task.channel.message_id if message.session.task.channel else None,
                text,
            )
            await connection.execute("SELECT pg_notify('deliveries', '')")
    except _Settled:
        return None
    return ChannelArrival(Arrival(session))


async def _still_open(
    connection: Connection, session: SessionRow, address: Address, message: ArrivingMessage, request_id: str
) -> bool:
    """Look again under the lock of the address: the question may have expired, or a reset may have withdrawn it."""
    thread = channels.thread_of(message.session)
    return await open_question(connection, session.tenant, address, thread) == request_id


async def _before(
    connection: Connection, session: SessionRow, address: Address, message: ArrivingMessage
) -> ChannelArrival | None:
    """Lock the address. Returns the earlier result of a message with this key, if there was one."""
    await addresses.locked(connection, session.tenant, address)
    if await channels.key_reused(connection, session.tenant, message):
        return ChannelArrival(Arrival(), key_reused=True)
    known = await addresses.known(connection, session.tenant, session.conversation_id, message.key)
    return ChannelArrival(Arrival(known, duplicate=True)) if known else None
