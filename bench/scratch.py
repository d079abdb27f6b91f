"""A scratch database on the same server, for measurements; sizes; and a table of events that was filled for them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from domain.ids import new_id
from store.database import Pool


@asynccontextmanager
async def scratch_database(pool: Pool) -> AsyncIterator[str]:
    """Create a database and yield its name; it is dropped afterwards, even with open connections."""
    name = f"scratch_{new_id()}"
    await pool.execute(f'CREATE DATABASE "{name}"')
    try:
        yield name
    finally:
        await pool.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


async def count_stored_bytes(pool: Pool, database: str) -> int:
    """The size on disk, including indexes."""
    size: int = await pool.fetchval("SELECT pg_database_size($1::name)", database)
    return size


async def session_bytes(pool: Pool, tenant: str, session_id: str) -> dict[str, int]:
    """Bytes of the rows of a session, by table, without indexes."""
    return {
        table: await pool.fetchval(
            f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t WHERE tenant = $1 AND {column} = $2",
            tenant,
            session_id,
        )
        for table, column in (("sessions", "id"), ("messages", "session_id"), ("events", "session_id"))
    }


async def event_bytes(pool: Pool, tenant: str, session_id: str, type: str) -> tuple[int, int]:
    """The rows of events of this type, and their bytes."""
    row = await pool.fetchrow(
        """SELECT count(*) AS n, coalesce(sum(pg_column_size(e.*)), 0) AS size FROM events e
            WHERE tenant = $1 AND session_id = $2 AND type = $3""",
        tenant,
        session_id,
        type,
    )
    assert row is not None
    return row["n"], row["size"]


async def fill_events(pool: Pool, tenant: str, first: int, count: int, per_session: int) -> None:
    """Write events of sessions whose ids sort by time, with text that no database can compress."""
    await pool.execute(
        """INSERT INTO events (tenant, session_id, seq, conversation_id, conv_seq, type, at, data, batch)
           SELECT $1, id, g % $4, id, g % $4, (ARRAY['step_completed', 'step_started', 'message_delta', 'message_delta',
                  'usage_updated', 'tool_called', 'tool_returned'])[1 + g % 7], now(),
                  '{"text": "' || md5(g::text) || md5((-g)::text) || repeat('x', 100) || '"}', ''
             FROM generate_series($2::bigint, $2::bigint + $3 - 1) g,
                  LATERAL (SELECT lpad((g / $4)::text, 26, '0') AS id) s""",
        tenant,
        first,
        count,
        per_session,
        timeout=600,
    )


async def begin_events(pool: Pool, tenant: str, session_id: str) -> None:
    """Let events of a session be appended that has no row."""
    await pool.execute(
        "INSERT INTO event_counters (tenant, scope) VALUES ($1, 's/' || $2::text), ($1, 'c/' || $2::text)",
        tenant,
        session_id,
    )


async def delete_events(pool: Pool, tenant: str, before: str) -> None:
    await pool.execute("DELETE FROM events WHERE tenant = $1 AND session_id < $2", tenant, before, timeout=600)


async def vacuum_events(pool: Pool) -> None:
    await pool.execute("VACUUM ANALYZE events", timeout=600)


async def sizes_of_events(pool: Pool) -> tuple[int, dict[str, int]]:
    """Bytes of the table of events, with what it stores apart, and of each of its indexes."""
    rows = await pool.fetch(
        """SELECT indexrelid::regclass::text AS name, pg_relation_size(indexrelid) AS size FROM pg_index
            WHERE indrelid = 'events'::regclass"""
    )
    return await pool.fetchval("SELECT pg_table_size('events')"), {row["name"]: row["size"] for row in rows}


# Figures over all tenants.


async def database_bytes(pool: Pool) -> int:
    """The size of the whole database on disk."""
    found: int = await pool.fetchval("SELECT pg_database_size(current_database())")
    return found


async def count_completed(pool: Pool, trigger: str) -> int:
    """The number of completed sessions of all tenants that were started in this way."""
    found: int = await pool.fetchval(
        "SELECT count(*) FROM sessions WHERE trigger = $1 AND status = 'completed'", trigger
    )
    return found


async def schedule_ids(pool: Pool) -> list[str]:
    return [row["id"] for row in await pool.fetch("SELECT id FROM schedules WHERE deleted_at IS NULL")]


async def schedule_runs(pool: Pool) -> int:
    found: int = await pool.fetchval("SELECT count(*) FROM schedule_runs")
    return found
