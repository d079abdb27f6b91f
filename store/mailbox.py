"""The mailbox: waiting messages, their contents, and the sessions that consumed them."""

import asyncpg

from domain.conversations.mailbox import MailboxMessage
from domain.conversations.requests import MOST_PENDING, PendingOutcome
from domain.events import EventRow
from domain.sessions.session import SessionRef, preview
from store.database import Pool, to_json

_COLUMNS = "message_id, conversation_id, source_session_id, source_type, subagent_name, created_at, delivered_to"


async def of_conversation(
    pool: Pool,
    tenant: str,
    conversation_id: str,
    *,
    pending_only: bool = True,
    after_id: str | None = None,
    limit: int = 1_000,
) -> list[MailboxMessage]:
    """The messages, in the order of posting."""
    rows = await pool.fetch(
        f"""SELECT {_COLUMNS} FROM {"held_mail($1, $2)" if pending_only else "mailbox"}
             WHERE tenant = $1 AND conversation_id = $2
               AND number > coalesce((SELECT number FROM mailbox WHERE tenant = $1 AND message_id = $3), 0)
             ORDER BY number LIMIT $4""",
        tenant,
        conversation_id,
        after_id,
        limit,
    )
    return [MailboxMessage(**row) for row in rows]


async def by_ids(pool: Pool, tenant: str, message_ids: list[str]) -> list[MailboxMessage]:
    """The messages, in the order of posting."""
    rows = await pool.fetch(
        f"SELECT {_COLUMNS} FROM mailbox WHERE tenant = $1 AND message_id = ANY($2::text[]) ORDER BY number",
        tenant,
        message_ids,
    )
    return [MailboxMessage(**row) for row in rows]


async def pending_count(pool: Pool, tenant: str, conversation_id: str) -> int:
    count: int = await pool.fetchval("SELECT pending_mail($1, $2)", tenant, conversation_id)
    return count


async def any_pending(pool: Pool, tenant: str, conversation_id: str) -> bool:
    """Whether a fire would take anything."""
    found: bool = await pool.fetchval("SELECT EXISTS (SELECT FROM held_mail($1, $2))", tenant, conversation_id)
    return found


async def held_outcomes(pool: Pool, tenant: str, conversation_id: str) -> list[PendingOutcome]:
    """The newest held outcomes of the root thread, in order, as the state of a conversation keeps them."""
    rows = await pool.fetch(
        f"""SELECT {_PENDING} FROM held_mail($1, $2) m
              JOIN sessions s ON s.tenant = m.tenant AND s.id = m.source_session_id
             ORDER BY m.number DESC LIMIT {MOST_PENDING}""",
        tenant,
        conversation_id,
    )
    return [_pending(row) for row in reversed(rows)]


async def pending_outcomes(pool: Pool, tenant: str, message_ids: list[str]) -> list[PendingOutcome]:
    """The entries that a conversation keeps of these messages while they wait, in order."""
    rows = await pool.fetch(
        f"""SELECT {_PENDING} FROM mailbox m
              JOIN sessions s ON s.tenant = m.tenant AND s.id = m.source_session_id
             WHERE m.tenant = $1 AND m.message_id = ANY($2::text[]) ORDER BY m.number""",
        tenant,
        message_ids,
    )
    return [_pending(row) for row in rows]


_PENDING = """m.message_id AS id, s.agent, s.subagent_name, s.status, s.title,
              left(coalesce(s.output, s.error, ''), 1000) AS text"""


def _pending(row: asyncpg.Record) -> PendingOutcome:
    return PendingOutcome(
        id=row["id"],
        agent=row["agent"],
        name=row["subagent_name"],
        status=row["status"],
        title=preview(row["title"] or "", 100),
        preview=preview(row["text"], 160),
    )


async def of_source(pool: Pool, tenant: str, session_id: str) -> MailboxMessage | None:
    row = await pool.fetchrow(
        f"SELECT {_COLUMNS} FROM mailbox WHERE tenant = $1 AND source_session_id = $2", tenant, session_id
    )
    return MailboxMessage(**row) if row else None


async def undelivered(pool: Pool, tenant: str, message_ids: list[str]) -> list[str]:
    """Those of the messages that no session has consumed, in order."""
    rows = await pool.fetch(
        """SELECT message_id FROM mailbox
            WHERE tenant = $1 AND message_id = ANY($2::text[]) AND delivered_to IS NULL ORDER BY number""",
        tenant,
        message_ids,
    )
    return [row["message_id"] for row in rows]


async def delivered_to(pool: Pool, ref: SessionRef) -> list[str]:
    rows = await pool.fetch(
        """SELECT message_id FROM mailbox WHERE tenant = $1 AND conversation_id = $2 AND delivered_to = $3
            ORDER BY number""",
        ref.tenant,
        ref.conversation_id,
        ref.session_id,
    )
    return [row["message_id"] for row in rows]


async def given_back(pool: Pool, tenant: str, conversation_id: str, thread_id: str) -> list[str]:
    """Outcomes for a thread that its session received but did not commit, in order."""
    rows = await pool.fetch(
        """SELECT message_id FROM mailbox
            WHERE tenant = $1 AND conversation_id = $2 AND thread_id = $3
              AND given_back_by IS NOT NULL AND delivered_to IS NULL
            ORDER BY number""",
        tenant,
        conversation_id,
        thread_id,
    )
    return [row["message_id"] for row in rows]


async def deliver(pool: Pool, tenant: str, message_ids: list[str], to: str, event: EventRow | None = None) -> None:
    """Mark messages as read by a session, so that no inbox delivers them any more. If that changes the mailbox, `event`
    is emitted."""
    async with pool.acquire() as connection, connection.transaction():
        # Lock the inbox first, in the same order as a session that takes a message and its outcome: no deadlock.
        await connection.execute(
            "SELECT 1 FROM inbox WHERE tenant = $1 AND id = ANY($2::text[]) ORDER BY id FOR NO KEY UPDATE",
            tenant,
            message_ids,
        )
        read = await connection.fetch(
            """UPDATE mailbox SET delivered_to = $3
                WHERE tenant = $1 AND message_id = ANY($2::text[]) AND delivered_to IS NULL RETURNING message_id""",
            tenant,
            message_ids,
            to,
        )
        if not read:
            return
        await connection.execute(
            "UPDATE inbox SET taken_by = $3, entered = true"
            " WHERE tenant = $1 AND id = ANY($2::text[]) AND taken_by IS NULL",
            tenant,
            [row["message_id"] for row in read],
            to,
        )
        if event is not None:
            await connection.execute(
                "SELECT emit_events($1, $2, $3::jsonb)", tenant, event.conversation_id, to_json([event])
            )
