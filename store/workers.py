"""Running workers, with their sandbox, tools and handlers. The API uses them to decide what it can accept."""

from collections.abc import Collection
from datetime import datetime

from domain.agents.models import ProviderReport
from store.database import Pool

FRESH_SECONDS = 30
RECONNECTED_SECONDS = 10  # twice the time between two heartbeats of a worker
MOST_PROBLEMS, MOST_CHARACTERS = 100, 1_000


async def beat(
    pool: Pool,
    worker_id: str,
    sandbox: str,
    tools: Collection[str] = (),
    handlers: Collection[str] = (),
    hooks: Collection[str] = (),
    problems: Collection[str] = (),
    models: Collection[ProviderReport] = (),
) -> None:
    await pool.execute(
        """INSERT INTO workers (id, sandbox, tools, handlers, hooks, problems, models)
           VALUES ($1, $2, $3, $4, $5, $6, $7)
           ON CONFLICT (id) DO UPDATE SET seen_at = now(), sandbox = excluded.sandbox, tools = excluded.tools,
                                          handlers = excluded.handlers, hooks = excluded.hooks,
                                          problems = excluded.problems, models = excluded.models""",
        worker_id,
        sandbox,
        sorted(tools),
        sorted(handlers),
        sorted(hooks),
        [problem[:MOST_CHARACTERS] for problem in problems][:MOST_PROBLEMS],
        [one.model_dump_json() for one in models],
    )


async def problems(pool: Pool) -> list[str]:
    """The faults in files of agents and own tools that running workers report."""
    sql = """SELECT DISTINCT unnest(problems) AS problem FROM workers
              WHERE seen_at > now() - make_interval(secs => $1) ORDER BY 1"""
    return [row["problem"] for row in await pool.fetch(sql, FRESH_SECONDS)]


async def models(pool: Pool) -> list[ProviderReport]:
    """The providers of models that running workers report."""
    sql = """SELECT DISTINCT unnest(models) AS report FROM workers
              WHERE seen_at > now() - make_interval(secs => $1) ORDER BY 1"""
    rows = await pool.fetch(sql, FRESH_SECONDS)
    found = [ProviderReport.model_validate_json(row["report"]) for row in rows]
    return list({one.provider: one for one in found}.values())


async def leave(pool: Pool, worker_id: str) -> None:
    await pool.execute("DELETE FROM workers WHERE id = $1", worker_id)


async def fresh(pool: Pool) -> dict[str, tuple[str, datetime]]:
    """Worker id -> its sandbox and the last time it was seen, for workers seen lately."""
    sql = "SELECT id, sandbox, seen_at FROM workers WHERE seen_at > now() - make_interval(secs => $1)"
    return {row["id"]: (row["sandbox"], row["seen_at"]) for row in await pool.fetch(sql, FRESH_SECONDS)}


async def tools(pool: Pool) -> set[str]:
    """The names that the workers of the last day reported."""
    return {row["tool"] for row in await pool.fetch("SELECT DISTINCT unnest(tools) AS tool FROM workers")}


async def begin_sweep(pool: Pool, worker_id: str, every_s: float) -> bool:
    """Whether this worker is to sweep now, because none has begun to for this time. Two that ask at the same moment may
    both: a sweep can be repeated."""
    sql = """UPDATE workers SET swept_at = now() WHERE id = $1 AND NOT EXISTS (
                 SELECT FROM workers WHERE swept_at BETWEEN now() - make_interval(secs => $2) AND now()) RETURNING id"""
    found = await pool.fetchval(sql, worker_id, every_s)
    return found is not None


async def forget_stale(pool: Pool) -> None:
    await pool.execute("DELETE FROM workers WHERE seen_at < now() - interval '1 day'")


async def dead(pool: Pool, own_id: str) -> set[str]:
    """The workers seen lately without a connection to this database: the kernel closes those of a killed process, and
    a worker that pauses keeps its own. None if the server has just started: then all of them have yet to connect
    again. Only for a pool named `own_id`; only its first statement finds an earlier process of that name. Nothing if
    the names of connections are hidden from us."""
    sql = """WITH connected AS (SELECT pid, application_name AS name FROM pg_stat_activity
                                 WHERE datname = current_database())
             SELECT id FROM workers WHERE seen_at > now() - make_interval(secs => $1)
                AND pg_postmaster_start_time() < now() - make_interval(secs => $3)
                AND EXISTS (SELECT FROM connected WHERE pid = pg_backend_pid() AND name = left($2, 63))
                AND NOT EXISTS (SELECT FROM connected WHERE pid <> pg_backend_pid() AND name = left(workers.id, 63))"""
    return {row["id"] for row in await pool.fetch(sql, FRESH_SECONDS, own_id, RECONNECTED_SECONDS)}
