"""The feed of a tenant: notices for its watchers, numbered without gaps and kept for a while."""

import json
from datetime import datetime

import asyncpg
from pydantic import BaseModel

from domain.json_object import JsonObject
from domain.notifications import NewNotice
from store.database import Connection, Pool, to_json


class FeedNotice(BaseModel):
    number: int
    type: str
    session_id: str | None
    conversation_id: str | None
    at: datetime
    data: JsonObject


def _read(row: asyncpg.Record) -> FeedNotice:
    return FeedNotice(**{**row, "data": json.loads(row["data"])})


async def give(connection: Connection, notice: NewNotice) -> None:
    """Write a notice in the transaction that it is about."""
    await connection.execute("SELECT give_notice($1::jsonb)", to_json([notice]))


async def after(pool: Pool, tenant: str, number: int, limit: int, created_by: str | None) -> list[FeedNotice]:
    """The notices after a number; with `created_by`, only those about that key's sessions."""
    rows = await pool.fetch(
        """SELECT number, type, session_id, conversation_id, at, data FROM notices
            WHERE tenant = $1 AND number > $2 AND ($4::text IS NULL OR created_by = $4) ORDER BY number LIMIT $3""",
        tenant,
        number,
        limit,
        created_by,
    )
    return [_read(row) for row in rows]


async def ends(pool: Pool, tenant: str) -> tuple[int, int]:
    """The number before the oldest notice that is kept, and the newest number."""
    row = await pool.fetchrow(
        """SELECT coalesce((SELECT last FROM event_counters WHERE tenant = $1 AND scope = 't/'), 0) AS last,
                  (SELECT min(number) FROM notices WHERE tenant = $1) AS first""",
        tenant,
    )
    assert row is not None
    return (row["last"] if row["first"] is None else row["first"] - 1), row["last"]


async def forget_old(pool: Pool, days: int) -> None:
    await pool.execute("DELETE FROM notices WHERE at < now() - make_interval(days => $1)", days)
