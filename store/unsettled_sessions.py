"""Sessions that should be running, for the sweeper to check."""

from domain.channels import MAX_DEBOUNCE_MS
from store.database import Pool
from store.readable import readable
from store.sessions import SessionRow, from_columns


async def unsettled(pool: Pool, silent_s: float, starting_s: float, limit: int = 500) -> list[SessionRow]:
    """Sessions of all tenants that are not terminal and have been silent for a while. Those that should begin come
    first, those that wait for people last. The rest are in random order, so that many live ones cannot hide a lost
    one."""
    rows = await pool.fetch(
        """SELECT * FROM sessions s WHERE status IN ('submitted', 'working', 'input_required')
              AND updated_at < now() - make_interval(secs => CASE WHEN status <> 'submitted' THEN $1::float8
                      WHEN trigger = 'channel' AND NOT live THEN $2::float8 + $4  -- it may wait for others
                      ELSE $2::float8 END)
            ORDER BY NOT (live AND status = 'submitted'),
                     status = 'input_required' AND cancel_requested IS NULL AND NOT EXISTS (
                         SELECT 1 FROM input_requests r WHERE r.tenant = s.tenant AND r.session_id = s.id
                            AND r.status = 'answered' AND NOT r.settled), random() LIMIT $3""",
        silent_s,
        starting_s,
        limit,
        MAX_DEBOUNCE_MS / 1_000,
    )
    return readable(rows, from_columns, "session")


async def unstarted(pool: Pool, starting_s: float, limit: int = 10) -> list[SessionRow]:
    """Sessions of callers, of all tenants, that were accepted in the last minute and should have begun. Few, in random
    order: if all workers are busy there are many, and nearly all of them were started."""
    rows = await pool.fetch(
        """SELECT * FROM sessions WHERE status = 'submitted' AND live AND spawned_by IS NULL
              AND updated_at BETWEEN now() - interval '1 minute' AND now() - make_interval(secs => $1)
            ORDER BY random() LIMIT $2""",
        starting_s,
        limit,
    )
    return readable(rows, from_columns, "session")


async def unheard(pool: Pool, older_than_s: float, limit: int = 20) -> list[tuple[str, str, str]]:
    """Stops and answers that running sessions of all tenants have not acted on: tenant, session, and what it is. In
    random order, so that one that cannot be signalled does not hide the others."""
    rows = await pool.fetch(
        """SELECT * FROM (
               SELECT tenant, id, cancel_requested AS what FROM sessions
                WHERE cancel_requested IS NOT NULL AND status IN ('submitted', 'working', 'input_required')
                  AND (cancel_requested::jsonb ->> 'at')::timestamptz < now() - make_interval(secs => $1)
               UNION ALL
               SELECT s.tenant, s.id, r.id FROM input_requests r
                 JOIN sessions s ON s.tenant = r.tenant AND s.id = r.session_id
                WHERE r.status = 'answered' AND NOT r.settled AND r.answered_at < now() - make_interval(secs => $1)
                  AND s.status IN ('submitted', 'working', 'input_required')) found
            ORDER BY random() LIMIT $2""",
        older_than_s,
        limit,
    )
    return [(row["tenant"], row["id"], row["what"]) for row in rows]


async def running(pool: Pool, limit: int = 500) -> list[tuple[str, str]]:
    """The sessions of all tenants that do not wait for people, with their conversations; the latest first."""
    rows = await pool.fetch(
        """SELECT id, conversation_id FROM sessions WHERE live AND status IN ('submitted', 'working')
            ORDER BY updated_at DESC LIMIT $1""",
        limit,
    )
    return [(row["id"], row["conversation_id"]) for row in rows]
