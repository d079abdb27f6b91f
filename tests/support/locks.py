"""Holds up the database where a test wants something to take long."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from store.database import Pool


@asynccontextmanager
async def tool_calls_locked(pool: Pool) -> AsyncIterator[None]:
    """Hold a lock so that no tool call can be recorded; existing ones can still be read."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("LOCK TABLE tool_calls IN EXCLUSIVE MODE")
        yield


async def waiting_for_tool_calls(pool: Pool) -> bool:
    """Whether another connection waits for the lock."""
    query = "SELECT count(*) FROM pg_locks WHERE relation = 'tool_calls'::regclass AND NOT granted"
    return bool(await pool.fetchval(query))
