"""The beginning of a step whose facts the worker knows: written beside the request or with the reply, and once."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from activities.model import step_beginning
from activities.model.step_beginning import StepBeginning
from activities.runtime.deferred_results import DeferredResults
from activities.runtime.event_writer import EventWriter
from activities.runtime.step_memory import StepMemory
from domain.events import EventRow, MessageDelta, ModelRetry, StepCompleted, StepStarted
from domain.sessions.session import Reason, SessionRef, Status
from domain.sessions.step_writes import RetryNote, StepBegin
from store import endings, messages, runs, sessions
from store.database import Pool
from store.messages import StepFacts
from tests.behaviour.store.conftest import Accept
from tests.behaviour.store.test_messages import step
from tests.behaviour.store.test_sessions import ending
from tests.support.stack import eventually

pytestmark = pytest.mark.exactly_once
HEAD = "the reply before"
BEGUN = ["step_completed", "step_started"]


@pytest_asyncio.fixture
async def writer(pool: Pool) -> AsyncIterator[EventWriter]:
    async with EventWriter(pool) as writer:
        yield writer


@pytest_asyncio.fixture
async def ref(pool: Pool, accept: Accept) -> SessionRef:
    """A session that has made its first step."""
    ref = await accept()
    await messages.begin_step(pool, StepBegin(**_fields(ref, idem(ref, 1), 1, 1), run="run"))
    await messages.commit_step(pool, step(ref, idem(ref, 1), 2, "first", run="run"))
    return ref


def idem(ref: SessionRef, number: int = 2) -> str:
    return f"{ref.session_id}/{number}"


def _fields(ref: SessionRef, key: str, version: int, number: int) -> dict[str, Any]:
    known = {"tenant": ref.tenant, "session_id": ref.session_id, "idem": key}
    return {**known, "version": version, "step": number, "attempt": 1}


def second_step(ref: SessionRef, **more: Any) -> StepBegin:
    events = [StepCompleted(step=1, result="ok"), StepStarted(step=2, description="look")]
    rows = [EventRow.of(ref, event) for event in events]
    return StepBegin(**{**_fields(ref, idem(ref), 3, 2), "run": "run", "head": HEAD, "events": rows, **more})


def beginning(pool: Pool, writer: EventWriter, ref: SessionRef) -> StepBeginning:
    """The second step, with facts that this worker knows."""
    memory = StepMemory(DeferredResults(pool, writer))
    memory.steps.remember("default", HEAD, "run", StepFacts(status=Status.WORKING))
    return StepBeginning(pool, writer, memory, ref, second_step(ref))


async def types(pool: Pool, ref: SessionRef) -> list[str]:
    """The types of the session's events, which are numbered without gaps."""
    rows = await pool.fetch("SELECT seq, type FROM events WHERE session_id = $1 ORDER BY seq", ref.session_id)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["type"] for row in rows if row["type"] != "task_submitted"][1:]  # without the first step's progress


async def step_of(pool: Pool, ref: SessionRef) -> int:
    row = await sessions.get(pool, "default", ref.session_id)
    assert row is not None
    return row.step


def delta(text: str = "a") -> MessageDelta:
    return MessageDelta(step=2, text=text)


async def test_a_quick_reply_is_committed_with_its_beginning(
    pool: Pool, ref: SessionRef, writer: EventWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_beginning, "GATHER", 60.0)  # the reply is always quicker
    async with beginning(pool, writer, ref) as begun:
        await begun.facts()
        writer.put(ref, delta())
        await asyncio.sleep(0.1)  # more than the writer waits
        assert (await types(pool, ref), await step_of(pool, ref)) == ([], 1)
        async with begun.joined(step(ref, idem(ref), 4, "second", run="run")) as commit:
            assert commit.begins == 2
            for _ in range(2):  # the result of the first may be lost
                await messages.commit_step(pool, commit)
    assert await types(pool, ref) == [*BEGUN, "message_delta", "progress"]
    assert await step_of(pool, ref) == 2


async def test_a_slow_reply_comes_after_its_beginning(pool: Pool, ref: SessionRef, writer: EventWriter) -> None:
    async with beginning(pool, writer, ref) as begun:
        await begun.facts()
        writer.put(ref, delta())

        async def shown() -> bool:
            return len(await types(pool, ref)) == 3

        await eventually(shown, what="the beginning and what the model has said so far")
        assert (await types(pool, ref), await step_of(pool, ref)) == ([*BEGUN, "message_delta"], 2)
        writer.put(ref, delta("b"))
        async with begun.joined(step(ref, idem(ref), 4, "second", run="run")) as commit:
            assert commit.begins is None
            await messages.commit_step(pool, commit)
    assert await types(pool, ref) == [*BEGUN, "message_delta", "message_delta", "progress"]


async def test_deltas_wait_for_a_beginning_that_is_being_written(
    pool: Pool, ref: SessionRef, writer: EventWriter
) -> None:
    async with beginning(pool, writer, ref) as begun:
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE", ref.session_id)
            await begun.facts()
            writer.put(ref, delta())
            await asyncio.sleep(0.2)
            assert await types(pool, ref) == []
        async with begun.joined(step(ref, idem(ref), 4, "second", run="run")) as commit:
            await messages.commit_step(pool, commit)
    assert await types(pool, ref) == [*BEGUN, "message_delta", "progress"]


async def test_a_beginning_whose_result_was_lost_is_written_once(pool: Pool, ref: SessionRef) -> None:
    for _ in range(2):
        await messages.write_beginning(pool, second_step(ref))
    assert await types(pool, ref) == BEGUN


async def test_lines_begin_in_any_order(pool: Pool, ref: SessionRef) -> None:
    later = second_step(ref, idem=idem(ref, 3), version=5)
    for begin in (later, second_step(ref), later, second_step(ref)):
        await messages.begin_step(pool, begin)
    assert await types(pool, ref) == BEGUN * 2


async def test_a_paused_attempt_does_not_begin_a_step_that_a_later_one_has_begun(
    pool: Pool, ref: SessionRef, writer: EventWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_beginning, "GATHER", 60.0)
    async with beginning(pool, writer, ref) as begun:
        await begun.facts()
        await messages.begin_step(pool, second_step(ref, attempt=2))
        await messages.write_beginning(pool, second_step(ref))
        async with begun.joined(step(ref, idem(ref), 4, "second", run="run")) as commit:
            await messages.commit_step(pool, commit)
    assert await types(pool, ref) == [*BEGUN, "progress"]


async def test_an_attempt_that_begins_beside_the_commit_does_not_begin_the_step_again(
    pool: Pool, ref: SessionRef, writer: EventWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_beginning, "GATHER", 60.0)
    async with beginning(pool, writer, ref) as begun:
        await begun.facts()
        async with begun.joined(step(ref, idem(ref), 4, "second", run="run")) as commit:
            await messages.commit_step(pool, commit)
    # as if it had looked for the reply before the commit, and waited for the row since
    await pool.execute("UPDATE messages SET idem = idem || '/hidden' WHERE idem = $1", idem(ref))
    await messages.begin_step(pool, second_step(ref, attempt=2))
    assert await types(pool, ref) == [*BEGUN, "progress"]


async def test_a_failed_call_writes_its_beginning_before_the_note_of_its_retry(
    pool: Pool, ref: SessionRef, writer: EventWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_beginning, "GATHER", 60.0)
    async with beginning(pool, writer, ref) as begun:
        await begun.facts()
        writer.put(ref, delta())
        await begun.written(seconds=2)
        retry = ModelRetry(step=2, attempt=1, model="m", reason="busy", next_at=datetime.now(UTC))
        rows = [*await writer.take(ref), EventRow.of(ref, retry)]
        note = RetryNote(tenant=ref.tenant, session_id=ref.session_id, retry=retry, events=rows)
        await messages.note_retry(pool, note)
    assert await types(pool, ref) == [*BEGUN, "message_delta", "model_retry"]
    await messages.begin_step(pool, second_step(ref, attempt=2))
    assert await types(pool, ref) == [*BEGUN, "message_delta", "model_retry"]


async def test_events_of_an_attempt_that_could_not_begin_are_dropped(
    pool: Pool, ref: SessionRef, writer: EventWriter
) -> None:
    """The next attempt begins the step; no delta may come before that."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE", ref.session_id)
        with pytest.raises(TimeoutError):
            async with beginning(pool, writer, ref) as begun:
                await begun.facts()
                writer.put(ref, delta())
                await begun.written(seconds=0.3)
        await asyncio.sleep(0.1)
        assert await types(pool, ref) == []
    await messages.begin_step(pool, second_step(ref, attempt=2))
    writer.put(ref, delta("b"))

    async def shown() -> bool:
        return len(await types(pool, ref)) == 3

    await eventually(shown, what="events are not held back any more")
    assert await types(pool, ref) == [*BEGUN, "message_delta"]


async def test_a_session_that_has_ended_refuses_the_beginning(pool: Pool, ref: SessionRef, writer: EventWriter) -> None:
    await endings.finish(pool, ending(ref, Reason.GOAL_REACHED))
    async with beginning(pool, writer, ref) as begun:
        await begun.facts()
        with pytest.raises(runs.SessionEnded):
            await begun.written(seconds=5)
    assert "step_started" not in await types(pool, ref)
