"""What a session recorded, read back: the parts of its trace, and the steps that a rerun repeats."""

import json
from dataclasses import dataclass
from datetime import datetime

from errand.models import ToolSpan
from pydantic import BaseModel, Json

from domain.messages import Body, Node, ReplyBody, read_body
from store.database import Pool, fetch_all, fetch_one


async def get_replies(pool: Pool, tenant: str, session_id: str, limit: int) -> list[Node]:
    """The messages that model calls committed."""
    sql = """SELECT id, parent, session_id, kind, author, line, side, step, body FROM messages
              WHERE tenant = $1 AND session_id = $2 AND kind = 'assistant' AND reply IS NOT NULL
              ORDER BY created_at, id LIMIT $3"""
    return await fetch_all(pool, Node, sql, tenant, session_id, limit)


async def get_calls(pool: Pool, tenant: str, session_id: str, limit: int) -> dict[tuple[str, int], ToolSpan]:
    """The tool calls by message and index. Their arguments are in the message."""
    sql = """SELECT node, call_index AS index, tool, effect, state, result, shown AS files, usage, started_at, ended_at
               FROM tool_calls
              WHERE tenant = $1 AND session_id = $2 ORDER BY node, call_index LIMIT $3"""
    rows = await pool.fetch(sql, tenant, session_id, limit)
    read = [{**row, "files": json.loads(row["files"]), "usage": json.loads(row["usage"] or "null")} for row in rows]
    return {(row["node"], row["index"]): ToolSpan(arguments="", **row) for row in read}


async def find_spawned(pool: Pool, tenant: str, session_id: str, limit: int) -> list[str]:
    """The sessions that this one started, oldest first."""
    sql = "SELECT id FROM sessions WHERE tenant = $1 AND spawned_by = $2 ORDER BY created_at, id LIMIT $3"
    return [row["id"] for row in await pool.fetch(sql, tenant, session_id, limit)]


# The recorded steps that a rerun repeats.


class RecordedReply(BaseModel):
    """A committed answer of the model."""

    node: str
    parent: str | None
    step: int
    body: Json[ReplyBody]
    reply: str  # JSON: the result that the workflow received


async def find_reply_time(pool: Pool, tenant: str, session_id: str, step: int) -> datetime | None:
    """When the model had answered in a step, before any tool of that step ran."""
    sql = """SELECT min(created_at) FROM messages
              WHERE tenant = $1 AND session_id = $2 AND line = 'main' AND step = $3 AND reply IS NOT NULL"""
    moment: datetime | None = await pool.fetchval(sql, tenant, session_id, step)
    return moment


@dataclass(frozen=True)
class Repeated:
    """The place of a recorded rerun's answer: the line of the original, and the number of the step."""

    line: str
    number: int


async def find_repeated(pool: Pool, tenant: str, session_id: str, line: str, step: int) -> Repeated | None:
    """Find the line to repeat. A line inside a call, `main/3.0`, repeats the line inside the call that the rerun's
    third step repeats. Step numbers differ from the original's if lines ran concurrently. None if there was no such
    line."""
    source: str | None = line
    above, _, place = line.rpartition("/")
    if above:
        outer, _, index = place.partition(".")
        sql = """SELECT o.line || '/' || o.step || '.' || $5
                   FROM messages r JOIN messages o ON o.tenant = r.tenant AND o.id = r.body::jsonb ->> 'origin'
                  WHERE r.tenant = $1 AND r.session_id = $2 AND r.line = $3 AND r.step = $4
                    AND r.kind = 'assistant' AND r.reply IS NOT NULL"""
        source = await pool.fetchval(sql, tenant, session_id, above, int(outer), index)
    sql = """SELECT count(DISTINCT step) FROM messages
              WHERE tenant = $1 AND session_id = $2 AND line = $3 AND kind = 'assistant' AND reply IS NOT NULL
                AND step < $4"""
    before: int = await pool.fetchval(sql, tenant, session_id, line, step)
    return Repeated(source, before + 1) if source is not None else None


async def find_recorded_reply(
    pool: Pool, tenant: str, session_id: str, line: str, from_step: int, number: int
) -> RecordedReply | None:
    """The answer of the `number`-th step of a line, counted from `from_step`. The last one counts; a final summary is
    not the answer of its step."""
    sql = """SELECT id AS node, parent, step, body, reply FROM messages
              WHERE tenant = $1 AND session_id = $2 AND line = $5 AND kind = 'assistant' AND reply IS NOT NULL
                AND step = (SELECT DISTINCT step FROM messages
                             WHERE tenant = $1 AND session_id = $2 AND line = $5 AND kind = 'assistant'
                               AND reply IS NOT NULL AND step >= $3 ORDER BY step OFFSET $4 LIMIT 1)
              ORDER BY jsonb_array_length(reply::jsonb -> 'calls') > 0 DESC, created_at DESC, id DESC LIMIT 1"""
    return await fetch_one(pool, RecordedReply, sql, tenant, session_id, from_step, number - 1, line)


async def lines_within(pool: Pool, tenant: str, session_id: str, line: str, step: int) -> set[int]:
    """The calls of a step that had their own line."""
    sql = """SELECT DISTINCT split_part(line, $3, 2) AS place FROM messages
              WHERE tenant = $1 AND session_id = $2 AND starts_with(line, $3)"""
    return {int(row["place"].partition("/")[0]) for row in await pool.fetch(sql, tenant, session_id, f"{line}/{step}.")}


async def find_messages_to(pool: Pool, tenant: str, session_id: str, line: str, step: int) -> list[tuple[str, Body]]:
    """The messages of people and the platform to a line before its answer in a step: author and body."""
    sql = """SELECT kind, author, body FROM messages
              WHERE tenant = $1 AND session_id = $2 AND line = $4 AND step = $3 AND kind IN ('user', 'note')
              ORDER BY created_at, id"""
    rows = await pool.fetch(sql, tenant, session_id, step, line)
    return [(row["author"], read_body(row["kind"], row["body"])) for row in rows]
