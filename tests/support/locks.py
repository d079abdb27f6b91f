"""Locks tables and rows, for tests that need an operation to take long."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from store.database import Pool
from tests.support.stack import Stack, eventually
from workflows.client import WorkflowClient


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


@asynccontextmanager
async def ending(stack: Stack, text: str) -> AsyncIterator[str]:
    """A session whose ending waits for a row until this exits. A message to it does not need that row, because its
    conversation has read its state: one that begins meanwhile would wait for the ending."""
    task_id = await stack.submit(f"{text} [[fault:slow delay=1]]")
    await stack.seen(task_id, "task_started")
    await WorkflowClient(stack.client, stack.settings.task_queue).reopen("default", task_id)

    async def ready() -> bool:
        return bool(await stack.pool.fetchval("SELECT has_workflow FROM conversations WHERE id = $1", task_id))

    await eventually(ready, pause=0.01, what="the conversation has begun")
    async with stack.pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT 1 FROM conversations WHERE id = $1 FOR NO KEY UPDATE", task_id)

        async def waits() -> bool:
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%finish_session%'"
            )
            return bool(await stack.pool.fetchval(query))

        await eventually(waits, pause=0.01, what="the ending waits for the row")
        yield task_id
