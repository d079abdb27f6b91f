"""A scratch database on the same server, for measurements; and the size of a database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from domain.ids import new_id
from store.database import Pool


@asynccontextmanager
async def scratch_database(pool: Pool) -> AsyncIterator[str]:
    """Create a database and yield its name; it is dropped afterwards, even with open connections."""
    name = f"scratch_{new_id()}"
    await pool.execute(f'CREATE DATABASE "{name}"')
    try:
        yield name
    finally:
        await pool.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


async def stored_bytes(pool: Pool, database: str) -> int:
    """The size on disk, including indexes."""
    size: int = await pool.fetchval("SELECT pg_database_size($1::name)", database)
    return size
