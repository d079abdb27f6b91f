"""Migrations: each runs once, under a lock, and is never changed afterwards."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from store import migrate as migrations
from store.migrate import FOLDER, FUNCTIONS, REDESIGN, MigrationChanged, TasksOfEarlierVersion, migrate
from tests.support.launch import empty_database
from tests.support.stack import Stack

_SESSION = """
INSERT INTO sessions (tenant, id, conversation_id, thread_id, workspace_id, agent_owner, agent, agent_version, models,
                      spec, limits, deadline, status)
VALUES ('default', $1, $1, $1, $1, '*', 'assistant', 1, '{}', '{}', '{}', now(), $2)
"""
_OUTCOME = """
INSERT INTO mailbox (tenant, message_id, conversation_id, thread_id, source_session_id, source_type, subagent_name)
VALUES ('default', 'm', 'two', 'two', 's', 'subagent_result', 'helper')
"""


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
    (tmp_path / "0002_second.sql").rename(tmp_path / "0003_second.sql")
    assert await migrate(fresh_url) == []  # a migration with another number is still the same one
    (tmp_path / "0001_first.sql").write_text("CREATE TABLE one (id bigint);")
    with pytest.raises(MigrationChanged):
        await migrate(fresh_url)


async def test_a_changed_function_takes_the_place_of_the_old_one(
    fresh_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "FOLDER", tmp_path / "none")
    monkeypatch.setattr(migrations, "FUNCTIONS", tmp_path)
    monkeypatch.setattr(migrations, "ROLES", tmp_path / "roles")
    (tmp_path / "roles").write_text("SELECT 1")
    for number in (1, 2):
        (tmp_path / "one.sql").write_text(
            f"CREATE OR REPLACE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT {number}'"
        )
        assert await migrate(fresh_url) == ["one.sql"]
    assert await migrate(fresh_url) == []
    connection = await asyncpg.connect(fresh_url)
    assert await connection.fetchval("SELECT one()") == 2
    await connection.close()


async def test_a_database_of_before_the_redesign_is_taken_over_once_its_tasks_have_ended(
    fresh_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in FOLDER.glob("*.sql"):
        if file.name < REDESIGN:
            (tmp_path / file.name).write_text(file.read_text())
    with monkeypatch.context() as earlier:
        earlier.setattr(migrations, "FOLDER", tmp_path)
        earlier.setattr(migrations, "FUNCTIONS", tmp_path / "none")
        (tmp_path / "roles").write_text("SELECT 1")
        earlier.setattr(migrations, "ROLES", tmp_path / "roles")
        before = await migrate(fresh_url)
    connection = await asyncpg.connect(fresh_url)
    try:
        for id, status in (("one", "working"), ("two", "completed")):
            await connection.execute(_SESSION, id, status)
            await connection.execute("INSERT INTO conversations (tenant, id) VALUES ('default', $1)", id)
        with pytest.raises(TasksOfEarlierVersion, match="1 task of an earlier version did not end, and 0 of its"):
            await migrate(fresh_url)
        await connection.execute("UPDATE sessions SET status = 'cancelled' WHERE id = 'one'")
        await connection.execute(_OUTCOME)
        with pytest.raises(TasksOfEarlierVersion, match="0 tasks .* and 1 of its conversations"):
            await migrate(fresh_url)
        assert {row["name"] for row in await connection.fetch("SELECT name FROM migrations")} == set(before)
        await connection.execute("UPDATE mailbox SET delivered_to = 'two'")
        await connection.execute("UPDATE sessions SET ended_at = now() WHERE id = 'two'")
        assert REDESIGN in await migrate(fresh_url)
        assert await connection.fetchval("SELECT count(*) FROM sessions") == 2
        # the deltas of sessions that ended before the upgrade are folded too
        assert [row[0] for row in await connection.fetch("SELECT session_id FROM unfolded_sessions")] == ["two"]
    finally:
        await connection.close()
