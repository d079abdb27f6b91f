"""The parts of a trace: a session's replies and tool calls, and the sessions below it."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Json

from domain.messages import ReplyBody
from store.database import Pool


class ReplyRow(BaseModel):
    """An assistant message that a model call committed."""

    id: str
    line: str
    side: str
    author: str
    step: int
    body: Json[ReplyBody]


class CallRow(BaseModel):
    node: str
    call_index: int
    tool: str
    effect: str
    state: str
    result: str
    started_at: datetime
    ended_at: datetime | None


async def replies(pool: Pool, tenant: str, session_id: str, limit: int) -> list[ReplyRow]:
    rows = await pool.fetch(
        """SELECT id, line, side, author, step, body FROM messages
            WHERE tenant = $1 AND session_id = $2 AND kind = 'assistant' AND reply IS NOT NULL
            ORDER BY created_at, id LIMIT $3""",
        tenant,
        session_id,
        limit,
    )
    return [ReplyRow(**row) for row in rows]


async def calls(pool: Pool, tenant: str, session_id: str, limit: int) -> list[CallRow]:
    rows = await pool.fetch(
        """SELECT node, call_index, tool, effect, state, result, started_at, ended_at FROM tool_calls
            WHERE tenant = $1 AND session_id = $2 ORDER BY node, call_index LIMIT $3""",
        tenant,
        session_id,
        limit,
    )
    return [CallRow(**row) for row in rows]


async def spawned(pool: Pool, tenant: str, session_id: str, limit: int) -> list[str]:
    """The sessions that this one started, oldest first."""
    rows: list[Any] = await pool.fetch(
        "SELECT id FROM sessions WHERE tenant = $1 AND spawned_by = $2 ORDER BY created_at, id LIMIT $3",
        tenant,
        session_id,
        limit,
    )
    return [row["id"] for row in rows]
