"""Outcomes: the ends of subagents' sessions and their replies, read when they are rendered."""

from domain.conversations.attachments import returned_paths
from domain.conversations.display_messages import said_before_the_end
from domain.conversations.mailbox import Outcome
from domain.messages import Node
from store import files
from store.database import Pool

MAX_NODES = 500  # per session: older messages would not fit into a prompt anyway


async def of_sessions(pool: Pool, tenant: str, session_ids: list[str]) -> list[Outcome]:
    """The outcomes, in the order of the ids."""
    if not session_ids:
        return []
    rows = await pool.fetch(
        """SELECT id AS session_id, coalesce(subagent_name, agent) AS name, status, reason, partial, committed, output,
                  typed, error, CASE WHEN subagent IS NOT NULL THEN thread_id END AS reference
             FROM sessions WHERE tenant = $1 AND id = ANY($2::text[])""",
        tenant,
        session_ids,
    )
    nodes = await _own_nodes(pool, tenant, session_ids)
    found = {
        row["session_id"]: Outcome(
            **row,
            earlier=said_before_the_end(nodes.get(row["session_id"], []), row["output"], typed=row["typed"]),
            attachments=await _returned(pool, tenant, row["session_id"]) if row["reference"] else [],
        )
        for row in rows
    }
    return [found[session_id] for session_id in session_ids if session_id in found]


async def _returned(pool: Pool, tenant: str, session_id: str) -> list[str]:
    """The paths of a subagent tool's files in its parent's workspace; its end has copied them there."""
    return returned_paths(session_id, [file.name for file in await files.returned_by(pool, tenant, session_id)])


async def _own_nodes(pool: Pool, tenant: str, session_ids: list[str]) -> dict[str, list[Node]]:
    """The replies of these sessions' agents, oldest first, on the path to each session's head."""
    rows = await pool.fetch(
        """WITH RECURSIVE walk AS (
               SELECT m.*, 1 AS depth FROM sessions s JOIN messages m ON m.tenant = s.tenant AND m.id = s.head
                WHERE s.tenant = $1 AND s.id = ANY($2::text[]) AND m.session_id = s.id
               UNION ALL
               SELECT m.*, depth + 1 FROM walk
                 JOIN messages m ON m.tenant = $1 AND m.id = walk.parent AND m.session_id = walk.session_id
                WHERE depth < $3)
           SELECT id, parent, session_id, kind, author, line, step, body FROM walk
            WHERE kind = 'assistant' ORDER BY depth DESC""",
        tenant,
        session_ids,
        MAX_NODES,
    )
    found: dict[str, list[Node]] = {}
    for row in rows:
        found.setdefault(row["session_id"], []).append(Node(**row))
    return found
