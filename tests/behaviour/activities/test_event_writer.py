"""The event writer: events of a quick call are written in the transaction of its commit, not in a separate one."""

import asyncio

import pytest

from activities.runtime import event_writer
from activities.runtime.event_writer import EventWriter
from domain.events import ToolCalled
from domain.ids import new_id
from domain.sessions.session import SessionRef
from tests.support.stack import Stack, eventually

CALLED = ToolCalled(tool="read_file", args="read notes.txt")


async def test_commit_includes_events_that_arrived_just_before(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_writer, "GATHER", 60.0)  # enough time for a busy machine
    ref = SessionRef(tenant="default", session_id="quick", conversation_id="quick")
    async with EventWriter(stack.pool) as writer:
        writer.put(ref, CALLED)
        for _ in range(5):  # enough turns for concurrent writers to start
            await asyncio.sleep(0)
        [row] = await writer.take(ref)
    assert row.type == "tool_called"


async def written(stack: Stack, ref: SessionRef) -> int:
    found: int = await stack.pool.fetchval("SELECT count(*) FROM events WHERE session_id = $1", ref.session_id)
    return found


async def counted(stack: Stack) -> SessionRef:
    """Create a session row, as far as its events need one."""
    name = new_id()
    await stack.pool.execute(
        "INSERT INTO event_counters VALUES ($1, $2), ($1, $3)", "default", f"s/{name}", f"c/{name}"
    )
    return SessionRef(tenant="default", session_id=name, conversation_id=name)


async def test_events_that_cannot_be_written_do_not_silence_those_after_them(stack: Stack) -> None:
    ref = await counted(stack)
    async with EventWriter(stack.pool) as writer:
        writer.put(SessionRef(tenant="default", session_id="\0", conversation_id="\0"), CALLED)

        async def tried() -> bool:
            return not writer._buffer

        await eventually(tried, seconds=10, pause=0.02, what="the first ones were tried")
        writer.put(ref, CALLED)

        async def there() -> bool:
            return await written(stack, ref) == 1

        await eventually(there, seconds=10, what="the next one is written")


async def test_a_write_that_a_shutdown_cuts_off_is_made_once(stack: Stack) -> None:
    ref = await counted(stack)
    writer = await EventWriter(stack.pool).__aenter__()
    async with stack.pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT 1 FROM event_counters WHERE scope = $1 FOR UPDATE", f"s/{ref.session_id}")
        writer.put(ref, CALLED)

        async def waits() -> bool:
            return bool(
                await stack.pool.fetchval(
                    "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%append_events%'"
                )
            )

        await eventually(waits, seconds=10, pause=0.02, what="the write waits for the counter")
        leaving = asyncio.create_task(writer.__aexit__())
        for _ in range(5):
            await asyncio.sleep(0)
    await leaving
    assert await written(stack, ref) == 1


async def test_held_events_are_not_written_but_can_be_taken(stack: Stack) -> None:
    held, other = await counted(stack), await counted(stack)
    async with EventWriter(stack.pool) as writer:
        for _ in range(2):  # by two calls
            writer.hold(held)
        writer.put(held, CALLED)
        writer.put(other, CALLED)

        async def others() -> bool:
            return await written(stack, other) == 1

        await eventually(others, seconds=10, pause=0.02, what="the events of other sessions are written")
        writer.release(held)
        await asyncio.sleep(0.1)  # more than the writer waits
        assert await written(stack, held) == 0
        assert [row.type for row in await writer.take(held)] == ["tool_called"]
        writer.put(held, CALLED)
        writer.release(held)

        async def released() -> bool:
            return await written(stack, held) == 1

        await eventually(released, seconds=10, pause=0.02, what="nobody holds them any more")


async def test_a_shutdown_writes_even_held_events(stack: Stack) -> None:
    ref = await counted(stack)
    async with EventWriter(stack.pool) as writer:
        writer.hold(ref)
        writer.put(ref, CALLED)
    assert await written(stack, ref) == 1
