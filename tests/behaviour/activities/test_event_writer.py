"""The event writer: nothing is lost, nothing is written twice, and what was put is in the store after a flush."""

import asyncio

from activities.events import EventWriter
from domain.events import ToolCalled
from domain.ids import new_id
from domain.sessions.session import SessionRef
from tests.support.stack import Stack, eventually

CALLED = ToolCalled(tool="read_file", args="read notes.txt")


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
