"""The only entrance for messages that do not name a conversation: an address has one conversation, a key one message.

The row of the address is locked during the whole acceptance. So two first messages never make two conversations, and
messages of one address are accepted in the order in which they arrive."""

from dataclasses import dataclass

from domain.channels import Address, AddressKind, ArrivingMessage
from domain.ids import derive_id, new_id
from domain.sessions.session import SessionRef
from domain.sessions.writes import Acceptance, NewMessage
from domain.task import parts_of
from store import sessions
from store.database import Connection, Pool, decide, fetch_one
from store.sessions import Accepted, SessionRow, from_columns


@dataclass(frozen=True)
class Arrival:
    """The result of a message: its session, or in `refused` the reason for a refusal."""

    session: SessionRow | None = None
    duplicate: bool = False  # a message with this key was accepted before and became `session`
    refused: Accepted | None = None


async def accept(pool: Pool, tenant: str, address: Address, message: ArrivingMessage) -> Arrival:
    """Accept one message for an address. The caller starts the session's workflow; a sweep repeats a lost start."""
    return await decide(
        pool,
        lambda connection: accept_in(connection, tenant, address, message),
        lambda arrival: arrival.refused is None,  # a refused first message leaves no address
    )


async def accept_in(
    connection: Connection, tenant: str, address: Address, message: ArrivingMessage, *, wait: bool = False
) -> Arrival:
    """The same inside a transaction that writes more. After a refusal the caller rolls back or leaves the address
    untouched. With `wait` the session is queued even if no other session is running."""
    conversation_id = await lock(connection, tenant, address)
    if (earlier := await find_known(connection, tenant, conversation_id, message.key)) is not None:
        return Arrival(earlier, duplicate=True)
    sql = "SELECT workspace_id FROM sessions WHERE tenant = $1 AND id = $2"
    workspace_id = await connection.fetchval(sql, tenant, conversation_id)
    first = workspace_id is None
    session_id = conversation_id if first else new_id()
    ref = SessionRef(tenant=tenant, session_id=session_id, conversation_id=conversation_id)
    acceptance = acceptance_of(ref, message, workspace_id).model_copy(update={"queue": wait})
    accepted = await sessions.accept(connection, acceptance)
    if accepted.busy and message.if_busy == "queue":
        accepted = await sessions.accept(connection, acceptance.model_copy(update={"queue": True}))
    if accepted.session is None:
        return Arrival(refused=accepted)
    if message.files and not first:
        await sessions.add_queued_files(connection, accepted.session, dict(message.files))
    await remember(connection, tenant, conversation_id, message.key, session_id)
    return Arrival(accepted.session)


async def lock(connection: Connection, tenant: str, address: Address, conversation_id: str | None = None) -> str:
    """The conversation of an address, locked until the transaction ends. A new address gets `conversation_id`, which
    exists, or a new conversation, which its first message opens."""
    sql = "INSERT INTO addresses (tenant, kind, key, conversation_id) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
    await connection.execute(sql, tenant, address.kind, address.key, conversation_id or new_id())
    sql = "SELECT conversation_id FROM addresses WHERE tenant = $1 AND kind = $2 AND key = $3 FOR UPDATE"
    found: str = await connection.fetchval(sql, tenant, address.kind, address.key)
    return found


async def find(pool: "Pool | Connection", tenant: str, address: Address) -> str | None:
    """The conversation of an address, if it has been used."""
    sql = "SELECT conversation_id FROM addresses WHERE tenant = $1 AND kind = $2 AND key = $3"
    found: str | None = await pool.fetchval(sql, tenant, address.kind, address.key)
    return found


async def of_conversation(pool: Pool, tenant: str, conversation_id: str) -> Address | None:
    """The address for which a conversation was made, if any. Other addresses may send messages to it later."""
    sql = "SELECT kind, key FROM addresses WHERE tenant = $1 AND conversation_id = $2 ORDER BY created_at LIMIT 1"
    row = await pool.fetchrow(sql, tenant, conversation_id)
    if row is None or row["kind"] not in set(AddressKind):  # of a kind that this version does not know
        return None
    return Address.of_key(row["kind"], row["key"])


async def remember(connection: Connection, tenant: str, conversation_id: str, key: str, session_id: str) -> None:
    """Record the session of the message with this key, so that the key is not accepted again."""
    sql = "INSERT INTO address_messages (tenant, conversation_id, key, session_id) VALUES ($1, $2, $3, $4)"
    await connection.execute(sql, tenant, conversation_id, key, session_id)


async def forget_old(pool: Pool, days: int) -> None:
    """Delete the keys of messages that are too old for their senders to repeat."""
    await pool.execute("DELETE FROM address_messages WHERE created_at < now() - make_interval(days => $1)", days)


def acceptance_of(ref: SessionRef, message: ArrivingMessage, workspace_id: str | None = None) -> Acceptance:
    """The session for a message: the first of its conversation, or one that waits in its queue."""
    first = ref.session_id == ref.conversation_id
    given = {"workspace_id": workspace_id, "spec": {**message.session.spec, "input": message.text}}
    session = message.session.model_copy(update=given)
    return Acceptance(
        session=session.place(ref),
        inbox=[
            NewMessage(
                id=derive_id(ref.session_id, "inbox", 0),
                author=message.author,
                parts=parts_of(message.text, files=message.shown),
                visible=message.visible,
            )
        ],
        live_quota=message.live_quota,
        budget=message.budget,
        in_order=not first,
        manifest=message.files if first else {},
        metadata=dict(message.metadata) if first else {},
    )


async def find_known(connection: Connection, tenant: str, conversation_id: str, key: str) -> SessionRow | None:
    """The session of the message with this key, if it was accepted before."""
    sql = """SELECT s.* FROM address_messages m JOIN sessions s ON s.tenant = m.tenant AND s.id = m.session_id
              WHERE m.tenant = $1 AND m.conversation_id = $2 AND m.key = $3"""
    return await fetch_one(connection, from_columns, sql, tenant, conversation_id, key)
