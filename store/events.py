"""The event log: numbered per session and per conversation without gaps, read forward from any number."""

import asyncio
import json
from collections.abc import Callable, Sequence
from operator import itemgetter

import asyncpg

from domain.events import EventRow, Recorded, ToolCalled
from domain.redaction import redact_json
from store.database import Pool, to_json
from store.folded_events import SPAN, Row, unfold

CHANNEL = "events"  # NOTIFY payload: tenant/conversation/session


async def append(pool: Pool, batch: str, rows: Sequence[EventRow], *, again: bool = False) -> None:
    """Write a batch in one statement; `again` marks a repetition whose first result was lost."""
    await pool.execute("SELECT append_events($1, $2, $3::jsonb)", batch, again, to_json(rows))


# Rows in the order of their last events, with at least the events of a page. The events of a row are less than SPAN
# numbers apart: so less than SPAN of the events counted here are not after $3. In a conversation rows overlap. A row
# that is left out ends after all of the others, so that less than SPAN of their events are after its first event.
_PAGE = """
SELECT session_id, seq, conv_seq, type, at, data, folded FROM (
    SELECT *, count(*) OVER so_far AS rows, sum(coalesce(folded, 1)) OVER so_far - coalesce(folded, 1) AS events
      FROM events WHERE tenant = $1 AND {scope} = $2 AND {number} > $3
    WINDOW so_far AS (ORDER BY {number} ROWS UNBOUNDED PRECEDING) ORDER BY {number} LIMIT $4::bigint + {overlap}) e
 WHERE events < $4 + {span} + {overlap} AND (folded IS NOT NULL OR rows <= $4)
"""
_OF_SESSION = _PAGE.format(scope="session_id", number="seq", span=SPAN, overlap=0)
_OF_CONVERSATION = _PAGE.format(scope="conversation_id", number="conv_seq", span=SPAN, overlap=SPAN)


async def of_session(pool: Pool, tenant: str, session_id: str, after: int, limit: int = 500) -> list[Recorded]:
    return _page(await pool.fetch(_OF_SESSION, tenant, session_id, after, limit), "seq", after, limit)


async def of_conversation(
    pool: Pool, tenant: str, conversation_id: str, after: int, limit: int = 500
) -> list[Recorded]:
    """The events of all its sessions, in the order of their common numbering."""
    return _page(await pool.fetch(_OF_CONVERSATION, tenant, conversation_id, after, limit), "conv_seq", after, limit)


def _page(rows: Sequence[Row], number: str, after: int, limit: int) -> list[Recorded]:
    found = [one for row in rows for one in unfold(row) if one[number] > after]
    return [_read(one) for one in sorted(found, key=itemgetter(number))[:limit]]


async def newest_of_types(pool: Pool, tenant: str, session_id: str, types: Sequence[str], limit: int) -> list[Recorded]:
    """The newest events of these types, which are not deltas, in the order in which they happened."""
    rows = await pool.fetch(
        """SELECT session_id, seq, conv_seq, type, at, data FROM events
            WHERE tenant = $1 AND session_id = $2 AND type = ANY($3::text[]) ORDER BY seq DESC LIMIT $4""",
        tenant,
        session_id,
        types,
        limit,
    )
    return [_read(row) for row in reversed(rows)]


async def without_deltas(pool: Pool, tenant: str, session_id: str, limit: int, after: int = 0) -> list[Recorded]:
    """The log without the deltas, whose text a later event repeats in full."""
    rows = await pool.fetch(
        """SELECT session_id, seq, conv_seq, type, at, data FROM ONLY events
            WHERE tenant = $1 AND session_id = $2 AND seq > $4 AND NOT is_delta(type) ORDER BY seq LIMIT $3""",
        tenant,
        session_id,
        limit,
        after,
    )
    return [_read(row) for row in rows]


def _read(row: Row) -> Recorded:
    data = json.loads(row["data"]) if isinstance(row["data"], str) else row["data"]
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
