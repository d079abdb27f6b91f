"""The result of a read that the next model call writes: once, before the step that follows it, and never forgotten."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from temporalio.exceptions import ApplicationError

from activities.model import step_beginning
from activities.model.step_beginning import StepBeginning
from activities.runtime import deferred_results
from activities.runtime.deferred_results import DeferredResults
from activities.runtime.event_writer import EventWriter
from activities.runtime.step_memory import StepMemory
from domain import wire
from domain.events import EventRow, ToolReturned
from domain.sessions.session import SessionRef, Status
from domain.sessions.step import CallState, Effect
from domain.sessions.tool_writes import ToolCommit
from store import messages, tool_calls
from store.database import Pool
from store.messages import StepFacts
from tests.behaviour.store.test_messages import step
from tests.behaviour.store.test_step_beginning import BEGUN, delta, idem, ref, second_step, types, writer
from tests.support.stack import eventually

pytestmark = pytest.mark.exactly_once
__all__ = ["ref", "writer"]  # fixtures


@pytest_asyncio.fixture
async def deferred(pool: Pool, writer: EventWriter) -> AsyncIterator[DeferredResults]:
    results = DeferredResults(pool, writer)
    yield results
    await results.written()


def head(ref: SessionRef) -> str:
    """The message that made the call."""
    return f"{ref.session_id}/reply"


def read(ref: SessionRef) -> ToolCommit:
    returned = ToolReturned(tool="look", state=CallState.OK, preview="Seen.")
    return ToolCommit(
        tenant=ref.tenant,
        session_id=ref.session_id,
        run="run",
        node=head(ref),
        call_index=0,
        tool="look",
        effect=Effect.READ,
        holder="holder",
        attempt=1,
        state=CallState.OK,
        result="Seen.",
        events=[EventRow.of(ref, returned)],
    )


def beginning(
    pool: Pool, writer: EventWriter, deferred: DeferredResults, ref: SessionRef, *, known: bool = True
) -> StepBeginning:
    memory = StepMemory(deferred)
    if known:
        memory.steps.remember("default", head(ref), "run", StepFacts(status=Status.WORKING))
    return StepBeginning(pool, writer, memory, ref, second_step(ref, head=head(ref)), awaits=True)


async def test_a_result_that_nobody_takes_is_written_alone(
    pool: Pool, ref: SessionRef, writer: EventWriter, deferred: DeferredResults
) -> None:
    deferred.put(ref, read(ref))
    writer.put(ref, delta())
    assert await types(pool, ref) == []

    async def shown() -> bool:
        return len(await types(pool, ref)) == 2

    await eventually(shown, what="the result, and what waited for it")
    assert await types(pool, ref) == ["tool_returned", "message_delta"]
    assert [one.text for one in await tool_calls.results(pool, "default", head(ref))] == ["Seen."]


async def test_a_quick_reply_is_committed_with_the_result_before_it(
    pool: Pool, ref: SessionRef, writer: EventWriter, deferred: DeferredResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_beginning, "GATHER", 60.0)  # the reply is always quicker
    deferred.put(ref, read(ref))
    async with beginning(pool, writer, deferred, ref) as begun:
        await begun.facts()
        await asyncio.sleep(2 * deferred_results.PAUSE)  # it is no longer written alone
        assert await types(pool, ref) == []
        async with begun.joined(step(ref, idem(ref), 4, "second", run="run")) as commit:
            for _ in range(2):  # the answer to the first may be lost
                await messages.commit_step(pool, commit)
    assert await types(pool, ref) == ["tool_returned", *BEGUN, "progress"]
    await asyncio.sleep(2 * deferred_results.PAUSE)
    assert await types(pool, ref) == ["tool_returned", *BEGUN, "progress"]
    assert len(await tool_calls.results(pool, "default", head(ref))) == 1


@pytest.mark.parametrize("known", [True, False])
async def test_a_result_is_written_with_the_beginning(
    pool: Pool, ref: SessionRef, writer: EventWriter, deferred: DeferredResults, known: bool
) -> None:
    """Beside the request to the model, or before it if the beginning reads what the call needs."""
    deferred.put(ref, read(ref))
    async with beginning(pool, writer, deferred, ref, known=known) as begun:
        facts = await begun.facts()
        assert known or [one.text for one in facts.results] == ["Seen."]
        await begun.written(seconds=5)
        assert await types(pool, ref) == ["tool_returned", *BEGUN]
        async with begun.joined(step(ref, idem(ref), 4, "second", run="run")) as commit:
            await messages.commit_step(pool, commit)
    assert await types(pool, ref) == ["tool_returned", *BEGUN, "progress"]


async def test_a_result_survives_an_attempt_that_wrote_nothing(
    pool: Pool, ref: SessionRef, writer: EventWriter, deferred: DeferredResults
) -> None:
    deferred.put(ref, read(ref))
    async with beginning(pool, writer, deferred, ref) as begun:
        await begun.facts()
    await deferred.written(ref)
    assert await types(pool, ref) == ["tool_returned"]


async def test_a_call_waits_for_the_result_of_another_worker(
    pool: Pool, ref: SessionRef, writer: EventWriter, deferred: DeferredResults
) -> None:
    elsewhere = DeferredResults(pool, writer)
    elsewhere.put(ref, read(ref))
    async with beginning(pool, writer, deferred, ref, known=False) as begun:
        facts = await begun.facts()
    assert [one.text for one in facts.results] == ["Seen."]
    assert await types(pool, ref) == ["tool_returned", *BEGUN]


async def test_a_lost_result_is_reported_before_the_step_begins(
    pool: Pool, ref: SessionRef, writer: EventWriter, deferred: DeferredResults
) -> None:
    async with beginning(pool, writer, deferred, ref, known=False) as begun:
        with pytest.raises(ApplicationError) as lost:
            await begun.facts()
    assert (lost.value.type, lost.value.non_retryable) == (wire.RESULT_LOST, True)
    assert await types(pool, ref) == []
