"""The event log: numbers without gaps for concurrent writers, repeats are recognised, nothing follows the end."""

import asyncio

import pytest

from domain.events import EventRow, Progress, TaskCompleted
from domain.ids import new_id
from domain.sessions.session import Reason, SessionRef, Status, Usage
from store import events
from store.database import Pool
from tests.behaviour.store.conftest import Accept


async def numbers(pool: Pool, ref: SessionRef) -> list[int]:
    return [event.seq for event in await events.of_session(pool, ref.tenant, ref.session_id, 0, 10_000)]


@pytest.mark.exactly_once
async def test_concurrent_writers_leave_no_gap(pool: Pool, accept: Accept) -> None:
    refs = [await accept() for _ in range(3)]

    async def write(writer: int) -> None:
        for number in range(20):
            mixed = [refs[(writer + number + place) % 3] for place in range(4)]
            rows = [EventRow.of(ref, Progress(message=f"{writer}.{number}")) for ref in mixed]
            await events.append(pool, new_id(), rows)

    await asyncio.gather(*(write(writer) for writer in range(8)))
    counts = [await numbers(pool, ref) for ref in refs]
    assert sum(map(len, counts)) == 8 * 20 * 4 + 3  # each begins with its task_submitted
    for ref, found in zip(refs, counts, strict=True):
        assert found == list(range(1, len(found) + 1))
        assert await events.head_of_session(pool, ref.tenant, ref.session_id) == (len(found), False)


async def test_a_batch_sent_again_is_written_once(pool: Pool, accept: Accept) -> None:
    ref, batch = await accept(), new_id()
    rows = [EventRow.of(ref, Progress(message=str(number))) for number in range(3)]
    await events.append(pool, batch, rows)
    await events.append(pool, batch, rows, again=True)
    assert await numbers(pool, ref) == [1, 2, 3, 4]  # after the task_submitted


@pytest.mark.exactly_once
async def test_terminal_event_is_the_last(pool: Pool, accept: Accept) -> None:
    ref, other = await accept(), await accept()
    end = TaskCompleted(status=Status.COMPLETED, reason=Reason.GOAL_REACHED, partial=False, usage=Usage())
    late = Progress(message="late")
    await events.append(pool, "", [EventRow.of(ref, end)])
    await events.append(pool, "", [EventRow.of(ref, late), EventRow.of(other, late), EventRow.of(ref, end)])
    types = [event.type for event in await events.of_session(pool, "default", ref.session_id, 0)]
    assert types == ["task_submitted", "task_completed"]
    assert await numbers(pool, other) == [1, 2]
