"""Migrations: each runs once, under a lock, and is never changed afterwards."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from store import migrate as migrations
from store.migrate import FOLDER, FUNCTIONS, MigrationChanged, migrate
from tests.support.launch import empty_database
from tests.support.stack import Stack


@pytest_asyncio.fixture
async def fresh_url(stack: Stack) -> AsyncIterator[str]:
    async with empty_database(stack.database_url) as url:
        yield url


async def test_processes_that_start_together_take_turns(fresh_url: str) -> None:
    applied = await asyncio.gather(*(migrate(fresh_url) for _ in range(4)))
    assert sorted(map(len, applied)) == [
        0,
        0,
        0,
        sum(len(list(folder.glob("*.sql"))) for folder in (FOLDER, FUNCTIONS)),
    ]


async def test_a_changed_migration_is_refused(fresh_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "FOLDER", tmp_path)
    monkeypatch.setattr(migrations, "FUNCTIONS", tmp_path / "none")
    monkeypatch.setattr(migrations, "ROLES", tmp_path / "roles")
    (tmp_path / "roles").write_text("SELECT 1")
    (tmp_path / "0001_first.sql").write_text("CREATE TABLE one (id int);")
    assert await migrate(fresh_url) == ["0001_first.sql"]
    (tmp_path / "0002_second.sql").write_text("CREATE TABLE two (id int); SELECT nonsense();")
    with pytest.raises(asyncpg.UndefinedFunctionError):
        await migrate(fresh_url)
    (tmp_path / "0002_second.sql").write_text("CREATE TABLE two (id int);")
    assert await migrate(fresh_url) == ["0002_second.sql"]  # the failed migration left nothing
    (tmp_path / "0001_first.sql").write_text("CREATE TABLE one (id bigint);")
    with pytest.raises(MigrationChanged):
        await migrate(fresh_url)
