"""Outcomes: the ends of subagents' sessions and their replies, read when they are rendered."""

import asyncpg

from domain.conversations.attachments import returned_paths
from domain.conversations.display_messages import said_before_the_end
from domain.conversations.mailbox import Outcome
from domain.messages import ReplyBody
from store import files
from store.database import Pool

MAX_NODES = 500  # per session: older messages would not fit into a prompt anyway


async def of_sessions(pool: Pool, tenant: str, session_ids: list[str]) -> list[Outcome]:
    """The outcomes, in the order of the ids."""
    if not session_ids:
        return []
    rows = await pool.fetch(
        f"SELECT {_COLUMNS} FROM sessions s WHERE s.tenant = $1 AND s.id = ANY($2::text[])", tenant, session_ids
    )
    found = {outcome.session_id: outcome for outcome in await _outcomes(pool, tenant, rows)}
    return [found[session_id] for session_id in session_ids if session_id in found]


async def of_messages(pool: Pool, tenant: str, message_ids: list[str]) -> list[Outcome]:
    """The outcomes to which these messages of a mailbox refer, in the order of posting."""
    rows = await pool.fetch(
        f"""SELECT {_COLUMNS} FROM unnest($2::text[]) wanted
              JOIN mailbox m ON m.tenant = $1 AND m.message_id = wanted
              JOIN sessions s ON s.tenant = $1 AND s.id = m.source_session_id
             ORDER BY m.number""",
        tenant,
        message_ids,
    )
    return await _outcomes(pool, tenant, rows)


_COLUMNS = """s.id AS session_id, coalesce(s.subagent_name, s.agent) AS name, s.status, s.reason, s.partial,
              s.committed, s.output, s.typed, s.error,
              CASE WHEN s.subagent IS NOT NULL THEN s.thread_id END AS reference"""


async def _outcomes(pool: Pool, tenant: str, rows: list[asyncpg.Record]) -> list[Outcome]:
    replies = await _replies(pool, tenant, [row["session_id"] for row in rows])
    return [
        Outcome(
            **dict(row),
            earlier=said_before_the_end(replies.get(row["session_id"], []), row["output"], typed=row["typed"]),
            attachments=await _returned(pool, tenant, row["session_id"]) if row["reference"] else [],
        )
        for row in rows
    ]


async def _returned(pool: Pool, tenant: str, session_id: str) -> list[str]:
    """The paths of a subagent tool's files in its parent's workspace; its end has copied them there."""
    return returned_paths(session_id, [file.name for file in await files.returned_by(pool, tenant, session_id)])


async def _replies(pool: Pool, tenant: str, session_ids: list[str]) -> dict[str, list[ReplyBody]]:
    """The replies of these sessions' agents, oldest first, on the path to each session's head."""
    rows = await pool.fetch(
        """WITH RECURSIVE walk AS (
               SELECT m.parent, m.session_id, CASE m.kind WHEN 'assistant' THEN m.body END AS reply, 1 AS depth
                 FROM sessions s JOIN messages m ON m.tenant = s.tenant AND m.id = s.head AND m.session_id = s.id
                WHERE s.tenant = $1 AND s.id = ANY($2::text[])
               UNION ALL
               SELECT m.parent, m.session_id, CASE m.kind WHEN 'assistant' THEN m.body END, depth + 1 FROM walk
                 JOIN messages m ON m.tenant = $1 AND m.id = walk.parent AND m.session_id = walk.session_id
                WHERE depth < $3)
           SELECT session_id, reply FROM walk WHERE reply IS NOT NULL ORDER BY depth DESC""",
        tenant,
        session_ids,
        MAX_NODES,
    )
    found: dict[str, list[ReplyBody]] = {}
    for row in rows:
        found.setdefault(row["session_id"], []).append(ReplyBody.model_validate_json(row["reply"]))
    return found
