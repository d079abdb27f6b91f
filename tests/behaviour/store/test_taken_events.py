"""Events that a transaction takes from the event writer are written once, even if nobody knows how it ended."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from activities.runtime.event_writer import Batch, EventWriter
from domain.events import ModelRetry, Progress
from domain.ids import new_id
from domain.sessions.session import Reason, SessionRef
from domain.sessions.step import Effect
from domain.sessions.step_writes import RetryNote
from store import endings, events, messages, tool_calls
from store.database import Pool
from tests.behaviour.store.conftest import Accept
from tests.behaviour.store.test_messages import step
from tests.behaviour.store.test_sessions import ending
from tests.behaviour.store.test_tool_calls import claim, outcome
from tests.support.stack import eventually

pytestmark = pytest.mark.exactly_once
Commit = Callable[[Pool, SessionRef, Batch], Awaitable[object]]


async def commit_step(pool: Pool, ref: SessionRef, taken: Batch) -> None:
    commit = step(ref, new_id(), 4, "done")
    await messages.commit_step(pool, commit.model_copy(update={"batch": taken.name, "events": taken.rows}))


async def commit_read(pool: Pool, ref: SessionRef, taken: Batch) -> None:
    commit = outcome(ref, new_id(), 1, "seen", Effect.READ)
    await tool_calls.commit(pool, commit.model_copy(update={"batch": taken.name, "events": taken.rows}))


async def commit_effect(pool: Pool, ref: SessionRef, taken: Batch) -> None:
    node = new_id()
    await tool_calls.claim(pool, claim(ref, node, 1, Effect.IDEMPOTENT))
    commit = outcome(ref, node, 1, "done")
    await tool_calls.commit(pool, commit.model_copy(update={"batch": taken.name, "events": taken.rows}))


async def note_retry(pool: Pool, ref: SessionRef, taken: Batch) -> None:
    retry = ModelRetry(step=1, attempt=1, model="m", reason="busy", next_at=datetime.now(UTC))
    note = RetryNote(tenant=ref.tenant, session_id=ref.session_id, retry=retry, batch=taken.name, events=taken.rows)
    await messages.note_retry(pool, note)


async def finish(pool: Pool, ref: SessionRef, taken: Batch) -> None:
    end = ending(ref, Reason.GOAL_REACHED)
    await endings.finish(pool, end.model_copy(update={"events": [*taken.rows, *end.events]}))


async def messages_of(pool: Pool, ref: SessionRef) -> list[str]:
    found = await events.of_session(pool, ref.tenant, ref.session_id, after=0)
    return [event.data["message"] for event in found if event.type == "progress"]


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("commit", [commit_step, commit_read, commit_effect, note_retry, finish])
async def test_events_of_a_transaction_that_is_cut_off_are_written_once(
    pool: Pool, accept: Accept, commit: Commit, written: bool
) -> None:
    ref = await accept()
    async with EventWriter(pool) as writer:
        writer.hold(ref)
        writer.put(ref, Progress(message="taken"))
        with pytest.raises(asyncio.CancelledError):
            async with writer.taken(ref) as taken:
                if written:
                    await commit(pool, ref, taken)
                raise asyncio.CancelledError
        writer.put(ref, Progress(message="later"))
        async with writer.taken(ref) as later:
            assert await messages_of(pool, ref) == ["taken"]
            await commit(pool, ref, later)
    ended = commit is finish and written
    assert await messages_of(pool, ref) == (["taken"] if ended else ["taken", "later"])


async def test_events_of_a_failed_transaction_are_written_although_nobody_takes_them(
    pool: Pool, accept: Accept
) -> None:
    ref = await accept()
    async with EventWriter(pool) as writer:
        writer.hold(ref)
        writer.put(ref, Progress(message="taken"))
        with pytest.raises(TimeoutError):
            async with writer.taken(ref):
                raise TimeoutError

        async def shown() -> bool:
            return await messages_of(pool, ref) == ["taken"]

        await eventually(shown, seconds=10, pause=0.02, what="the events that were given back")


async def test_an_ending_waits_for_events_that_may_be_given_back(pool: Pool, accept: Accept) -> None:
    ref, first_is_slow = await accept(), asyncio.Event()
    async with EventWriter(pool) as writer:
        writer.hold(ref)
        writer.put(ref, Progress(message="taken"))

        async def first() -> None:
            async with writer.taken(ref):
                await first_is_slow.wait()
                raise TimeoutError

        async def second() -> None:
            async with writer.taken(ref) as taken:
                await finish(pool, ref, taken)

        tasks = [asyncio.create_task(first()), asyncio.create_task(second())]
        await asyncio.wait(tasks, timeout=0.2)
        first_is_slow.set()
        await asyncio.wait(tasks)
        assert isinstance(tasks[0].exception(), TimeoutError) and tasks[1].exception() is None
    found = await events.of_session(pool, ref.tenant, ref.session_id, after=0)
    assert [event.type for event in found][-2:] == ["progress", "task_completed"]
