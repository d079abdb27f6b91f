"""The mailbox: waiting messages, the sessions that consumed them, and the outcomes that they refer to."""

from typing import Any

import asyncpg
from errand.models import MailboxMessage

from domain.conversations.display_messages import find_said_before
from domain.conversations.mailbox import Outcome, name_returned, path_spellings, replace_paths
from domain.conversations.requests import MOST_PENDING, PendingOutcome
from domain.events import EventRow
from domain.messages import ReplyBody
from domain.sessions.session import Reason, SessionRef, Status, preview
from store import files
from store.database import Pool, fetch_all, fetch_one, to_json

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
    sql = f"""SELECT {_COLUMNS} FROM {"held_mail($1, $2)" if pending_only else "mailbox"}
               WHERE tenant = $1 AND conversation_id = $2
                 AND number > coalesce((SELECT number FROM mailbox WHERE tenant = $1 AND message_id = $3), 0)
               ORDER BY number LIMIT $4"""
    return await fetch_all(pool, MailboxMessage, sql, tenant, conversation_id, after_id, limit)


async def by_ids(pool: Pool, tenant: str, message_ids: list[str]) -> list[MailboxMessage]:
    """The messages, in the order of posting."""
    sql = f"SELECT {_COLUMNS} FROM mailbox WHERE tenant = $1 AND message_id = ANY($2::text[]) ORDER BY number"
    return await fetch_all(pool, MailboxMessage, sql, tenant, message_ids)


async def count_pending(pool: Pool, tenant: str, conversation_id: str) -> int:
    return int(await pool.fetchval("SELECT count(*) FROM held_mail($1, $2)", tenant, conversation_id))


async def has_pending(pool: Pool, tenant: str, conversation_id: str) -> bool:
    """Whether a fire would take anything."""
    return bool(await pool.fetchval("SELECT EXISTS (SELECT FROM held_mail($1, $2))", tenant, conversation_id))


async def preview_held(pool: Pool, tenant: str, conversation_id: str) -> list[PendingOutcome]:
    """The newest held outcomes of the root thread, in order, as the state of a conversation keeps them."""
    sql = f"""SELECT {_PENDING} FROM held_mail($1, $2) m
                JOIN sessions s ON s.tenant = m.tenant AND s.id = m.source_session_id
               ORDER BY m.number DESC LIMIT {MOST_PENDING}"""
    rows = await pool.fetch(sql, tenant, conversation_id)
    return [_pending(**row) for row in reversed(rows)]


async def preview_messages(pool: Pool, tenant: str, message_ids: list[str]) -> list[PendingOutcome]:
    """The entries that a conversation keeps of these messages while they wait, in order."""
    sql = f"""SELECT {_PENDING} FROM mailbox m
                JOIN sessions s ON s.tenant = m.tenant AND s.id = m.source_session_id
               WHERE m.tenant = $1 AND m.message_id = ANY($2::text[]) ORDER BY m.number"""
    return await fetch_all(pool, _pending, sql, tenant, message_ids)


_PENDING = """m.message_id AS id, s.agent, s.subagent_name, s.status, s.title,
              left(coalesce(s.output, s.error, ''), 1000) AS text"""


def _pending(**row: Any) -> PendingOutcome:
    return PendingOutcome(
        id=row["id"],
        agent=row["agent"],
        name=row["subagent_name"],
        status=row["status"],
        title=preview(row["title"] or "", 100),
        preview=preview(row["text"], 160),
    )


async def of_source(pool: Pool, tenant: str, session_id: str) -> MailboxMessage | None:
    sql = f"SELECT {_COLUMNS} FROM mailbox WHERE tenant = $1 AND source_session_id = $2"
    return await fetch_one(pool, MailboxMessage, sql, tenant, session_id)


async def find_undelivered(pool: Pool, tenant: str, message_ids: list[str]) -> list[str]:
    """Those of the messages that no session has consumed, in order."""
    sql = """SELECT message_id FROM mailbox
              WHERE tenant = $1 AND message_id = ANY($2::text[]) AND delivered_to IS NULL ORDER BY number"""
    return [row["message_id"] for row in await pool.fetch(sql, tenant, message_ids)]


async def find_delivered_to(pool: Pool, ref: SessionRef) -> list[str]:
    sql = """SELECT message_id FROM mailbox WHERE tenant = $1 AND conversation_id = $2 AND delivered_to = $3
              ORDER BY number"""
    return [row["message_id"] for row in await pool.fetch(sql, ref.tenant, ref.conversation_id, ref.session_id)]


async def find_given_back(pool: Pool, tenant: str, conversation_id: str, thread_id: str) -> list[str]:
    """Outcomes for a thread that its session received but did not commit, in order."""
    sql = """SELECT message_id FROM mailbox
              WHERE tenant = $1 AND conversation_id = $2 AND thread_id = $3
                AND given_back_by IS NOT NULL AND delivered_to IS NULL
              ORDER BY number"""
    return [row["message_id"] for row in await pool.fetch(sql, tenant, conversation_id, thread_id)]


async def deliver(pool: Pool, tenant: str, message_ids: list[str], to: str, event: EventRow | None = None) -> None:
    """Mark messages as read by a session, so that no inbox delivers them any more. If that changes the mailbox, `event`
    is emitted."""
    async with pool.acquire() as connection, connection.transaction():
        # Lock the inbox first, in the same order as a session that takes a message and its outcome: no deadlock.
        sql = "SELECT 1 FROM inbox WHERE tenant = $1 AND id = ANY($2::text[]) ORDER BY id FOR NO KEY UPDATE"
        await connection.execute(sql, tenant, message_ids)
        sql = """UPDATE mailbox SET delivered_to = $3
                  WHERE tenant = $1 AND message_id = ANY($2::text[]) AND delivered_to IS NULL RETURNING message_id"""
        read = await connection.fetch(sql, tenant, message_ids, to)
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
            sql = "SELECT emit_events($1, $2, $3::jsonb)"
            await connection.execute(sql, tenant, event.conversation_id, to_json([event]))


# Outcomes: the ends of subagents' sessions and their replies, read when they are rendered.


MAX_NODES = 500  # per session: older messages would not fit into a prompt anyway


async def outcomes_of_sessions(pool: Pool, tenant: str, session_ids: list[str]) -> list[Outcome]:
    """The outcomes, in the order of the ids."""
    if not session_ids:
        return []
    sql = f"SELECT {_OUTCOME_COLUMNS} FROM sessions s WHERE s.tenant = $1 AND s.id = ANY($2::text[])"
    rows = await pool.fetch(sql, tenant, session_ids)
    found = {outcome.session_id: outcome for outcome in await _outcomes(pool, tenant, rows)}
    return [found[session_id] for session_id in session_ids if session_id in found]


async def outcomes_held(pool: Pool, tenant: str, conversation_id: str) -> dict[str, Outcome]:
    """The outcomes that a fire would take, by the ids of their messages, in the order of posting."""
    sql = "SELECT message_id, source_session_id FROM held_mail($1, $2) ORDER BY number"
    rows = await pool.fetch(sql, tenant, conversation_id)
    # No join: a plan that was made while the tables were small would read all sessions for each message.
    found = await outcomes_of_sessions(pool, tenant, [row["source_session_id"] for row in rows])
    return {row["message_id"]: outcome for row, outcome in zip(rows, found, strict=True)}


_OUTCOME_COLUMNS = """s.id AS session_id, coalesce(s.subagent_name, s.agent) AS name, s.status, s.reason, s.partial,
              s.committed, s.output, s.typed, s.error, s.head,
              CASE WHEN s.subagent IS NOT NULL THEN s.thread_id END AS reference,
              (SELECT p.workspace_id = s.workspace_id FROM sessions p
                WHERE p.tenant = s.tenant AND p.id = s.spawned_by) AS shared"""


async def _outcomes(pool: Pool, tenant: str, rows: list[asyncpg.Record]) -> list[Outcome]:
    replies = await _replies(pool, tenant, {row["session_id"]: row["head"] for row in rows if row["head"]})
    tools = [row["session_id"] for row in rows if row["reference"]]
    returned = {session_id: await _find_returned(pool, tenant, session_id) for session_id in tools}
    return [_outcome(row, replies.get(row["session_id"], []), returned.get(row["session_id"], {})) for row in rows]


def _outcome(row: asyncpg.Record, replies: list[ReplyBody], returned: dict[str, str | None]) -> Outcome:
    """`returned`: the parent's paths of its files, with its own. The parent reads only its own paths."""
    paths = {} if row["shared"] else {way: new for new, old in returned.items() if old for way in path_spellings(old)}
    earlier = find_said_before(replies, row["output"], typed=row["typed"]) if replies else []
    return Outcome(
        session_id=row["session_id"],
        name=row["name"],
        status=Status(row["status"]),
        reason=Reason(row["reason"]) if row["reason"] else None,
        partial=row["partial"],
        committed=row["committed"],
        output=replace_paths(row["output"], paths) if row["output"] else row["output"],
        typed=row["typed"],
        error=replace_paths(row["error"], paths) if row["error"] else row["error"],
        reference=row["reference"],
        earlier=[replace_paths(text, paths) for text in earlier],
        attachments=list(returned),
    )


async def _find_returned(pool: Pool, tenant: str, session_id: str) -> dict[str, str | None]:
    """The paths of a subagent tool's files in its parent's workspace, where its end has copied them, with its own."""
    found = await files.find_returned(pool, tenant, session_id)
    paths = name_returned(session_id, [file.name for file in found])
    return {path: file.path for path, file in zip(paths, found, strict=True)}


async def _replies(pool: Pool, tenant: str, heads: dict[str, str]) -> dict[str, list[ReplyBody]]:
    """The replies of agents, by their sessions and oldest first, on the path to each session's head."""
    if not heads:
        return {}
    sql = "SELECT session_id, reply FROM session_replies($1, $2, $3, $4)"
    rows = await pool.fetch(sql, tenant, list(heads), list(heads.values()), MAX_NODES)
    found: dict[str, list[ReplyBody]] = {}
    for row in rows:
        found.setdefault(row["session_id"], []).append(ReplyBody.model_validate_json(row["reply"]))
    return found
