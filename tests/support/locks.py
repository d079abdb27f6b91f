"""Locks tables, for tests that need an operation to take long."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from store.database import Pool


@asynccontextmanager
async def locked(pool: Pool, table: str) -> AsyncIterator[None]:
    """Hold a lock so that nothing can be written to the table; it can still be read."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
        yield


async def waiting_for(pool: Pool, table: str) -> bool:
    """Whether another connection waits for the lock."""
    query = "SELECT count(*) FROM pg_locks WHERE relation = $1::text::regclass AND NOT granted"
    return bool(await pool.fetchval(query, table))
