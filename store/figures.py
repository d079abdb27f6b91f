"""Figures for operators: of all tenants for the metrics, of one tenant for the console."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, Field

from domain.ids import new_id
from store.database import Pool

TIME_LENGTH = 10  # characters of an id that hold its time


class TenantFigures(BaseModel):
    """A tenant's running and waiting tasks, its requests that wait for people, and its spending since midnight UTC."""

    running: int
    waiting: int = Field(description="tasks; one may wait for several requests")
    queued: int
    open_requests: int
    failed_today: int
    cost_usd_today: float
    tokens_today: int


class Percentiles(BaseModel):
    """Of a time in milliseconds: the middle, and what 95 of 100 do not exceed."""

    median: float
    most: float


class Bucket(BaseModel):
    """The tasks that began in an hour or a day; of one agent, or of all."""

    at: datetime
    agent: str | None
    tasks: int
    ended: int
    failed: int
    cost_usd: float
    first_step: Percentiles | None = Field(description="from the request to the first step")


class Failures(BaseModel):
    reason: str
    tasks: int


class PeriodFigures(BaseModel):
    """What the tasks that began in a time did, subagents included."""

    since: datetime
    tasks: int
    ended: int
    failed: int
    cost_usd: float
    took: Percentiles | None
    waited: Percentiles | None = Field(description="of requests that people answered")
    answers: int
    by_time: list[Bucket]
    by_agent: list[Bucket] = Field(description="of the agents in each hour or day")
    failures: list[Failures] = Field(description="the most frequent reason first")
    complete: bool = Field(description="false: there are more tasks than were counted")


async def by_day_and_agent(pool: Pool, tenant: str, days: int, agent: str | None) -> PeriodFigures:
    """Of one day by hour, of more by day; of the newest MOST_COUNTED tasks."""
    now = datetime.now(UTC)
    hourly = days == 1
    edge = now.replace(hour=now.hour if hourly else 0, minute=0, second=0, microsecond=0)
    since = edge - (timedelta(hours=23) if hourly else timedelta(days=days - 1))
    rows = await pool.fetch(
        """WITH recent AS (
               SELECT date_trunc($3, created_at, 'UTC') AS at, agent, status, ended_at, u.cost_usd AS cost,
                      CASE WHEN status = 'failed' THEN coalesce(nullif(error_type, ''), reason, 'error') END AS failure,
                      1000 * extract(epoch FROM ended_at - created_at)::float AS took,
                      1000 * extract(epoch FROM started_at - created_at)::float AS first
                 FROM sessions s, jsonb_populate_record(NULL::usage, s.usage::jsonb) u
                WHERE tenant = $1 AND id >= $2 AND ($4::text IS NULL OR agent = $4)
                ORDER BY id DESC LIMIT $5)
           SELECT at, agent, failure, grouping(at, agent, failure) AS level, count(*) AS tasks,
                  count(ended_at) AS ended, count(failure) AS failed, coalesce(sum(cost), 0) AS cost_usd,
                  percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY took) AS took,
                  percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY first) AS first
             FROM recent GROUP BY GROUPING SETS ((at, agent), (at), (failure), ())
            ORDER BY level DESC, at DESC, cost_usd DESC LIMIT 5000""",
        tenant,
        _first_id_of(since),
        "hour" if hourly else "day",
        agent,
        MOST_COUNTED,
    )
    sql = """SELECT count(*) AS answers, percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (
                        ORDER BY 1000 * extract(epoch FROM answered_at - created_at)::float) AS waited
               FROM input_requests WHERE tenant = $1 AND status = 'answered' AND answered_at >= $2
                AND kind <> 'external_event'"""
    waits = await pool.fetchrow(sql, tenant, since)
    assert waits is not None
    [total] = [row for row in rows if row["level"] == _ALL]
    failures = [Failures(reason=row["failure"], tasks=row["tasks"]) for row in rows if row["failure"] is not None]
    return PeriodFigures(
        since=since,
        **{name: total[name] for name in ("tasks", "ended", "failed", "cost_usd")},
        took=_spread(total["took"]),
        waited=_spread(waits["waited"]),
        answers=waits["answers"],
        by_time=_buckets(rows, _OF_TIME),
        by_agent=_buckets(rows, _OF_AGENT),
        failures=sorted(failures, key=lambda one: -one.tasks),
        complete=total["tasks"] < MOST_COUNTED,
    )


MOST_COUNTED = 100_000
_OF_AGENT, _OF_TIME, _ALL = 0b001, 0b011, 0b111  # the bits of grouping(): what a row is not divided by


def _buckets(rows: Sequence[Any], level: int) -> list[Bucket]:
    """Oldest first, and of one time the most expensive first."""
    names = ("at", "agent", "tasks", "ended", "failed", "cost_usd")
    found = [
        Bucket(**{name: row[name] for name in names}, first_step=_spread(row["first"]))
        for row in rows
        if row["level"] == level
    ]
    return sorted(found, key=lambda one: one.at)


def _spread(found: list[float | None] | None) -> Percentiles | None:
    if not found or found[0] is None or found[1] is None:
        return None
    return Percentiles(median=found[0], most=found[1])


async def sessions_by_status(pool: Pool) -> dict[str, int]:
    return {row["status"]: row["n"] for row in await pool.fetch("SELECT status, n FROM count_sessions()")}


async def of_tenant(pool: Pool, tenant: str) -> TenantFigures:
    sql = """WITH live AS (
                 SELECT count(*) FILTER (WHERE status = 'working') AS running,
                        count(*) FILTER (WHERE status = 'input_required') AS waiting,
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
             SELECT running, waiting, queued, failed AS failed_today, cost AS cost_usd_today,
                    tokens::bigint AS tokens_today,
                    (SELECT count(*) FROM input_requests WHERE tenant = $1 AND status = 'open'
                        AND kind <> 'external_event') AS open_requests
               FROM live, today"""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    row = await pool.fetchrow(sql, tenant, _first_id_of(midnight))
    assert row is not None
    return TenantFigures(**row)


def _first_id_of(moment: datetime) -> str:
    """The least id since then. Ids begin with their time, so that the primary key finds the sessions of a day."""
    return new_id(int(moment.timestamp() * 1_000))[:TIME_LENGTH]
