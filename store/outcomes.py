"""Outcomes: the ends of subagents' sessions and their replies, read when they are rendered."""

import asyncpg

from domain.conversations.display_messages import said_before_the_end
from domain.conversations.mailbox import Outcome, path_spellings, replace_paths, returned_paths
from domain.messages import ReplyBody
from domain.sessions.session import Reason, Status
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


async def held(pool: Pool, tenant: str, conversation_id: str) -> dict[str, Outcome]:
    """The outcomes that a fire would take, by the ids of their messages, in the order of posting."""
    rows = await pool.fetch(
        "SELECT message_id, source_session_id FROM held_mail($1, $2) ORDER BY number", tenant, conversation_id
    )
    # No join: a plan that was made while the tables were small would read all sessions for each message.
    found = await of_sessions(pool, tenant, [row["source_session_id"] for row in rows])
    return {row["message_id"]: outcome for row, outcome in zip(rows, found, strict=True)}


_COLUMNS = """s.id AS session_id, coalesce(s.subagent_name, s.agent) AS name, s.status, s.reason, s.partial,
              s.committed, s.output, s.typed, s.error, s.head,
              CASE WHEN s.subagent IS NOT NULL THEN s.thread_id END AS reference,
              (SELECT p.workspace_id = s.workspace_id FROM sessions p
                WHERE p.tenant = s.tenant AND p.id = s.spawned_by) AS shared"""


async def _outcomes(pool: Pool, tenant: str, rows: list[asyncpg.Record]) -> list[Outcome]:
    replies = await _replies(pool, tenant, {row["session_id"]: row["head"] for row in rows if row["head"]})
    tools = [row["session_id"] for row in rows if row["reference"]]
    returned = {session_id: await _returned(pool, tenant, session_id) for session_id in tools}
    return [_outcome(row, replies.get(row["session_id"], []), returned.get(row["session_id"], {})) for row in rows]


def _outcome(row: asyncpg.Record, replies: list[ReplyBody], returned: dict[str, str | None]) -> Outcome:
    """`returned`: the parent's paths of its files, with its own. The parent reads only its own paths."""
    paths = {} if row["shared"] else {way: new for new, old in returned.items() if old for way in path_spellings(old)}
    earlier = said_before_the_end(replies, row["output"], typed=row["typed"]) if replies else []
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


async def _returned(pool: Pool, tenant: str, session_id: str) -> dict[str, str | None]:
    """The paths of a subagent tool's files in its parent's workspace, where its end has copied them, with its own."""
    found = await files.returned_by(pool, tenant, session_id)
    paths = returned_paths(session_id, [file.name for file in found])
    return {path: file.path for path, file in zip(paths, found, strict=True)}


async def _replies(pool: Pool, tenant: str, heads: dict[str, str]) -> dict[str, list[ReplyBody]]:
    """The replies of agents, by their sessions and oldest first, on the path to each session's head."""
    if not heads:
        return {}
    rows = await pool.fetch(
        "SELECT session_id, reply FROM session_replies($1, $2, $3, $4)",
        tenant,
        list(heads),
        list(heads.values()),
        MAX_NODES,
    )
    found: dict[str, list[ReplyBody]] = {}
    for row in rows:
        found.setdefault(row["session_id"], []).append(ReplyBody.model_validate_json(row["reply"]))
    return found
