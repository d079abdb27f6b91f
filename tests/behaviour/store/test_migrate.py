"""Migrations: each runs once, under a lock, and is never changed afterwards; defaults and columns of what they make."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from settings import ROOT
from store import migrate as migrations
from store.database import Pool
from store.migrate import FOLDER, FUNCTIONS, MigrationChanged, migrate
from store.sessions import SessionRow
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


INSERT = re.compile(r"INSERT INTO (\w+)(?: AS \w+)?\s*(?:\(([^()]+)\)|VALUES \((\w+)\.\*\))")
SOURCES = [*(ROOT / "store").glob("*.py"), *(ROOT / "store" / "functions").glob("*.sql")]


async def test_no_column_that_is_always_written_has_a_default(pool: Pool) -> None:
    filled: dict[str, list[set[str] | None]] = {}  # None means a whole row
    for file in SOURCES:
        for table, columns, row in INSERT.findall(file.read_text()):
            filled.setdefault(table, []).append(None if row else set(re.split(r",\s*", columns.strip())))
    rows = await pool.fetch(
        """SELECT table_name, column_name FROM information_schema.columns
            WHERE table_schema = 'public' AND column_default IS NOT NULL"""
    )
    dead = [
        (table, column)
        for table, column in rows
        if table in filled and all(columns is None or column in columns for columns in filled[table])
    ]
    assert dead == []
    assert len(filled) > 30


NOT_IN_THE_ROW = {"acceptance"}  # read only with the result; null until the first check


async def test_session_row_has_every_column_of_its_table(pool: Pool) -> None:
    columns = await pool.fetch(
        """SELECT column_name AS name, is_nullable = 'NO' AS required FROM information_schema.columns
            WHERE table_schema = 'public' AND table_name = 'sessions'"""
    )
    assert {column["name"] for column in columns} == {*SessionRow.model_fields, *NOT_IN_THE_ROW}
    assert not [column["name"] for column in columns if column["required"] and column["name"] in NOT_IN_THE_ROW]
