"""Applies the SQL migrations, each once, then the functions that changed; `python -m store.migrate` does so by hand."""

import asyncio
import hashlib
import sys
from pathlib import Path

import asyncpg

from settings import Settings
from store.database import patiently

FOLDER = Path(__file__).parent / "migrations"
FUNCTIONS = Path(__file__).parent / "functions"  # one file each; a file that changed replaces what it defined before
LOCK = 0x65727261  # any number of our own; two processes that start together take turns

_TABLE = """
CREATE TABLE IF NOT EXISTS migrations (
    name text PRIMARY KEY, digest text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())
"""

_RECORD = """
INSERT INTO migrations (name, digest) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, applied_at = now()
"""


class MigrationChanged(RuntimeError):
    """An applied migration's file differs now: write a new migration instead."""


async def migrate(url: str) -> list[str]:
    """Bring the schema up to date; returns the names applied now."""
    connection = await patiently(lambda: asyncpg.connect(url), seconds=30)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
        await connection.execute(_TABLE)
        known = {row["name"]: row["digest"] for row in await connection.fetch("SELECT name, digest FROM migrations")}
        applied = []
        for file in [*sorted(FOLDER.glob("*.sql")), *sorted(FUNCTIONS.glob("*.sql"))]:
            sql = file.read_text()
            digest = hashlib.sha256(sql.encode()).hexdigest()
            if known.get(file.name) == digest:
                continue
            if file.name in known and file.parent == FOLDER:
                raise MigrationChanged(f"{file.name} was applied with other contents; write a new migration instead")
            async with connection.transaction():
                await connection.execute("SET LOCAL check_function_bodies = off")  # they call each other
                await connection.execute(sql)
                await connection.execute(_RECORD, file.name, digest)
            applied.append(file.name)
        return applied
    finally:
        await connection.close()


def main() -> None:
    url = Settings.from_env().database_url
    if not url:
        sys.exit("ERRAND_DATABASE_URL is not set")
    for name in asyncio.run(migrate(url)):
        sys.stdout.write(f"applied {name}\n")


if __name__ == "__main__":
    main()
