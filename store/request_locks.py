"""Locks for requests in progress. They are rows, because a request uses several pooled connections and an advisory lock
belongs to one."""

from store.database import Pool


async def acquire(pool: Pool, tenant: str, name: str, holder: str, seconds: float) -> bool:
    """Take a lock for a number of seconds; False if another holder has it."""
    row = await pool.fetchrow(
        """INSERT INTO request_locks AS l (tenant, name, holder, until)
                VALUES ($1, $2, $3, now() + make_interval(secs => $4))
           ON CONFLICT (tenant, name) DO UPDATE SET holder = EXCLUDED.holder, until = EXCLUDED.until
            WHERE l.until < now() OR l.holder = EXCLUDED.holder
        RETURNING 1""",
        tenant,
        name,
        holder,
        seconds,
    )
    return row is not None


async def release(pool: Pool, tenant: str, name: str, holder: str) -> None:
    """Release a lock, even an expired one, unless another holder has taken it since."""
    await pool.execute(
        "DELETE FROM request_locks WHERE tenant = $1 AND name = $2 AND holder = $3", tenant, name, holder
    )


async def forget_old(pool: Pool) -> None:
    await pool.execute("DELETE FROM request_locks WHERE until < now() - interval '1 hour'")
