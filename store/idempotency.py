"""Requests that must not take effect twice: stored responses by Idempotency-Key, and locks while one is handled."""

from domain.errors import Invalid
from domain.sessions.writes import IdempotencyRecord
from store.database import Connection, Pool

KEPT_HOURS = 24


def key_reused() -> Invalid:
    return Invalid("This Idempotency-Key was used for another request before.", type="idempotency-key-reused")


async def find(pool: "Pool | Connection", tenant: str, key: str, digest: str) -> str | None:
    """The stored response to the request with this key; refused if another request had the key."""
    sql = "SELECT digest, response FROM idempotency WHERE tenant = $1 AND key = $2"
    row = await pool.fetchrow(sql, tenant, key)
    if row is not None and row["digest"] != digest:
        raise key_reused()
    return row["response"] if row else None


async def reserve(pool: "Pool | Connection", tenant: str, record: IdempotencyRecord) -> str:
    """Write the response before the operation. Returns the stored one, which may be that of an earlier repetition;
    refused if another request had the key."""
    sql = """INSERT INTO idempotency (tenant, key, digest, status, response) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT DO NOTHING"""
    await pool.execute(sql, tenant, record.key, record.digest, record.status, record.response)
    return await find(pool, tenant, record.key, record.digest) or record.response


async def forget(pool: Pool, tenant: str, key: str) -> None:
    """Remove the record of an operation that was refused, so that it can be tried again."""
    await pool.execute("DELETE FROM idempotency WHERE tenant = $1 AND key = $2", tenant, key)


async def forget_old(pool: Pool) -> None:
    await pool.execute("DELETE FROM idempotency WHERE created_at < now() - make_interval(hours => $1)", KEPT_HOURS)


# Locks for requests in progress. They are rows, because a request uses several pooled connections and an advisory lock
# belongs to one.


async def acquire_lock(pool: Pool, tenant: str, name: str, holder: str, seconds: float) -> bool:
    """Take a lock for a number of seconds; False if another holder has it."""
    sql = """INSERT INTO request_locks AS l (tenant, name, holder, until)
                  VALUES ($1, $2, $3, now() + make_interval(secs => $4))
             ON CONFLICT (tenant, name) DO UPDATE SET holder = EXCLUDED.holder, until = EXCLUDED.until
              WHERE l.until < now() OR l.holder = EXCLUDED.holder
          RETURNING 1"""
    row = await pool.fetchrow(sql, tenant, name, holder, seconds)
    return row is not None


async def release_lock(pool: Pool, tenant: str, name: str, holder: str) -> None:
    """Release a lock, even an expired one, unless another holder has taken it since."""
    sql = "DELETE FROM request_locks WHERE tenant = $1 AND name = $2 AND holder = $3"
    await pool.execute(sql, tenant, name, holder)


async def forget_old_locks(pool: Pool) -> None:
    await pool.execute("DELETE FROM request_locks WHERE until < now() - interval '1 hour'")
