"""Figures for operators: of all tenants for the metrics, of one tenant for the console."""

from datetime import UTC, datetime

from pydantic import BaseModel

from domain.ids import new_id
from store.database import Pool

TIME_LENGTH = 10  # characters of an id that hold its time


class TenantFigures(BaseModel):
    """A tenant's running tasks, its requests that wait for people, and its spending since midnight UTC."""

    running: int
    queued: int
    open_requests: int
    failed_today: int
    cost_usd_today: float
    tokens_today: int


async def sessions_by_status(pool: Pool) -> dict[str, int]:
    rows = await pool.fetch("SELECT status, n FROM count_sessions()")
    return {row["status"]: row["n"] for row in rows}


async def of_tenant(pool: Pool, tenant: str) -> TenantFigures:
    row = await pool.fetchrow(
        """WITH live AS (
               SELECT count(*) FILTER (WHERE status <> 'submitted') AS running,
                      count(*) FILTER (WHERE status = 'submitted') AS queued
                 FROM sessions WHERE tenant = $1 AND status IN ('submitted', 'working', 'input_required')),
           today AS (
               SELECT count(*) FILTER (WHERE status = 'failed') AS failed,
                      coalesce(sum(u.cost_usd), 0) AS cost,
                      -- the console adds these up for a task
                      coalesce(sum(u.input_tokens + u.output_tokens + u.cache_read_tokens + u.cache_write_tokens), 0)
                          AS tokens
                 FROM sessions s, jsonb_populate_record(NULL::usage, s.usage::jsonb) u
                WHERE tenant = $1 AND id >= $2)
           SELECT running, queued, failed AS failed_today, cost AS cost_usd_today, tokens::bigint AS tokens_today,
                  (SELECT count(*) FROM input_requests WHERE tenant = $1 AND status = 'open'
                      AND kind <> 'external_event') AS open_requests
             FROM live, today""",
        tenant,
        _first_id_of_today(),
    )
    assert row is not None
    return TenantFigures(**dict(row))


def _first_id_of_today() -> str:
    """The least id of today. Ids begin with their time, so that the primary key finds the sessions of a day."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return new_id(int(midnight.timestamp() * 1_000))[:TIME_LENGTH]
