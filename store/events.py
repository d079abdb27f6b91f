"""The event log: numbered per session and per conversation, read forward from any number."""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from domain.events import EventRow, Recorded, ToolCalled
from domain.redaction import redact_json
from store.database import Connection, Pool, fetch_all, to_json

CHANNEL = "events"  # NOTIFY payload: tenant/conversation/session


async def append(pool: "Pool | Connection", batch: str, rows: Sequence[EventRow], *, again: bool = False) -> None:
    """Write a batch in one statement; `again` marks a repetition whose first result was lost."""
    await pool.execute("SELECT append_events($1, $2, $3::jsonb)", batch, again, to_json(rows))


_EVENTS = "SELECT session_id, seq, conv_seq, type, at, data FROM events WHERE tenant = $1 AND"


async def of_session(pool: Pool, tenant: str, session_id: str, after: int, limit: int = 500) -> list[Recorded]:
    sql = f"{_EVENTS} session_id = $2 AND seq > $3 ORDER BY seq LIMIT $4"
    return await fetch_all(pool, _read, sql, tenant, session_id, after, limit)


async def of_conversation(
    pool: Pool, tenant: str, conversation_id: str, after: int, limit: int = 500
) -> list[Recorded]:
    """The events of all its sessions, in the order of their common numbering."""
    sql = f"{_EVENTS} conversation_id = $2 AND conv_seq > $3 ORDER BY conv_seq LIMIT $4"
    return await fetch_all(pool, _read, sql, tenant, conversation_id, after, limit)


async def newest_of_types(
    pool: "Pool | Connection", tenant: str, session_id: str, types: Sequence[str], limit: int
) -> list[Recorded]:
    """The newest events of these types, which are not deltas, in the order in which they happened."""
    sql = f"{_EVENTS} session_id = $2 AND type = ANY($3::text[]) ORDER BY seq DESC LIMIT $4"
    return (await fetch_all(pool, _read, sql, tenant, session_id, types, limit))[::-1]


async def without_deltas(pool: Pool, tenant: str, session_id: str, limit: int, after: int = 0) -> list[Recorded]:
    """The log without the deltas, whose text a later event repeats in full."""
    sql = f"{_EVENTS} session_id = $2 AND seq > $3 AND NOT is_delta(type) ORDER BY seq LIMIT $4"
    return await fetch_all(pool, _read, sql, tenant, session_id, after, limit)


async def delete_pieces(pool: Pool, ended_before: timedelta, limit: int) -> int:
    """Delete the pieces of texts of so many sessions that ended before, and return how many there were. Their numbers
    stay unused; `message` and `thinking` have the text."""
    sql = """WITH due AS (
                 DELETE FROM ended_streams WHERE (tenant, session_id) IN (
                     SELECT tenant, session_id FROM ended_streams WHERE ended_at < now() - $1::interval
                      ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED)
                 RETURNING tenant, session_id
             ), pieces AS (
                 DELETE FROM events e USING due d
                  WHERE e.tenant = d.tenant AND e.session_id = d.session_id AND is_delta(e.type))
             SELECT count(*) FROM due"""
    return int(await pool.fetchval(sql, ended_before, limit))


def _read(**row: Any) -> Recorded:
    data = json.loads(row["data"])
    if row["type"] == ToolCalled.type and "arguments" in data:  # as the model gave them, see with_arguments.sql
        data["arguments"] = redact_json(data["arguments"])
    return Recorded(**{**row, "data": data})


async def head_of_session(pool: Pool, tenant: str, session_id: str) -> tuple[int, bool] | None:
    """The last number, and whether the log is closed; None for an unknown session."""
    return await _head(pool, tenant, f"s/{session_id}")


async def head_of_conversation(pool: Pool, tenant: str, conversation_id: str) -> int:
    """The last number of all its sessions."""
    head = await _head(pool, tenant, f"c/{conversation_id}")
    return head[0] if head else 0


async def _head(pool: Pool, tenant: str, scope: str) -> tuple[int, bool] | None:
    row = await pool.fetchrow("SELECT last, closed FROM event_counters WHERE tenant = $1 AND scope = $2", tenant, scope)
    return (row["last"], row["closed"]) if row else None


async def listen(url: str, ready: Callable[[], None], notice: Callable[[str, str, str], None]) -> None:
    """Call back on every append (tenant, conversation, session) until the connection is lost."""
    lost = asyncio.Event()
    connection = await asyncpg.connect(url)
    try:
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(CHANNEL, lambda _c, _pid, _channel, payload: notice(*payload.split("/", 2)))
        ready()
        await lost.wait()
    finally:
        connection.terminate()
