"""The places to which secrets could leak: every table, Temporal's files and every log of the stack under test."""

import asyncio
from pathlib import Path

from tests.support.stack import Stack


async def secrets_found(stack: Stack, secrets: list[bytes]) -> list[str]:
    """The places that contain one of the secrets."""
    assert all(len(secret) > 10 for secret in secrets)
    tables = await stack.pool.fetch("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'")
    assert len(tables) > 10
    found = []
    for table in tables:
        rows = await stack.pool.fetch(f'SELECT t::text AS row FROM "{table["name"]}" t')
        found += [table["name"] for row in rows if any(secret in row["row"].encode() for secret in secrets)]
    for path in await asyncio.to_thread(_files, stack.root):
        content = await asyncio.to_thread(path.read_bytes)
        found += [path.name for secret in secrets if secret in content]
    return found


def _files(root: Path) -> list[Path]:
    """Temporal's database with its write-ahead log, every log, and the state file."""
    found = [*(root / "temporal").glob("temporal.db*"), *(root / "logs").iterdir(), root / "stack.json"]
    found.append(root.parent / "stack.log")
    assert len(found) > 6
    return [path for path in found if path.is_file()]
