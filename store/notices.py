"""The feed of a tenant: notices for its watchers, numbered without gaps and kept for a while."""

import json
from typing import Any

from errand.models import Notice

from domain.notifications import NewNotice
from store.database import Connection, Pool, fetch_all, to_json

# events of sessions, as the feed names them
_TYPES = {
    "task_started": "session_started",
    "task_completed": "session_completed",
    "task_failed": "session_failed",
    "task_cancelled": "session_cancelled",
}


def _read(**row: Any) -> Notice:
    known = {**row, "type": _TYPES.get(row["type"], row["type"]), "at": row["at"].isoformat()}
    data = json.loads(known.pop("data"))
    return Notice.model_validate({**known, **data})


async def give(connection: Connection, notice: NewNotice) -> None:
    """Write a notice in the transaction that it is about."""
    await connection.execute("SELECT give_notice($1::jsonb)", to_json([notice]))


async def after(pool: Pool, tenant: str, number: int, limit: int, created_by: str | None) -> list[Notice]:
    """The notices after a number; with `created_by`, only those about that key's sessions."""
    sql = """SELECT number, type, session_id, conversation_id, at, data FROM notices
              WHERE tenant = $1 AND number > $2 AND ($4::text IS NULL OR created_by = $4) ORDER BY number LIMIT $3"""
    return await fetch_all(pool, _read, sql, tenant, number, limit, created_by)


async def ends(pool: Pool, tenant: str) -> tuple[int, int]:
    """The number before the oldest notice that is kept, and the newest number."""
    sql = """SELECT coalesce((SELECT last FROM event_counters WHERE tenant = $1 AND scope = 't/'), 0) AS last,
                    (SELECT min(number) FROM notices WHERE tenant = $1) AS first"""
    row = await pool.fetchrow(sql, tenant)
    assert row is not None
    return (row["last"] if row["first"] is None else row["first"] - 1), row["last"]


async def forget_old(pool: Pool, days: int) -> None:
    await pool.execute("DELETE FROM notices WHERE at < now() - make_interval(days => $1)", days)
