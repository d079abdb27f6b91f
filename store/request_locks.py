"""Locks of requests that are handled now. A connection of the pool cannot hold them: a request needs several."""

from store.database import Pool


async def acquire(pool: Pool, tenant: str, name: str, holder: str, seconds: float) -> bool:
    """Take a lock for so long; False if another holder has it."""
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
    """Also a lock whose time is over, unless another holder has taken it since."""
    await pool.execute(
        "DELETE FROM request_locks WHERE tenant = $1 AND name = $2 AND holder = $3", tenant, name, holder
    )


async def forget_old(pool: Pool) -> None:
    await pool.execute("DELETE FROM request_locks WHERE until < now() - interval '1 hour'")
