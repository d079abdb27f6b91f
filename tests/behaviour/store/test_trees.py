"""A cancelled tree accepts no further sessions, whichever of the two requests came first."""

import asyncio
from typing import Literal

import pytest

from domain.ids import new_id
from domain.sessions.new_session import SessionType, Trigger
from domain.sessions.session import DeliveryMode, Reason, RecordedStop, Scope, SessionRef
from domain.sessions.writes import Acceptance
from store import sessions, threads
from store.database import Pool, to_json
from store.sessions import Accepted, acceptance_document
from tests.behaviour.store.conftest import NEW, Accept
from tests.behaviour.store.test_sessions import end


def child_of(spawner: SessionRef, depth: int = 1) -> Acceptance:
    name = new_id()
    spawned = {"spawned_by": spawner.session_id, "trigger": Trigger.ASYNC_TASK, "session_type": SessionType.SUBAGENT}
    child = NEW.model_copy(update={**spawned, "workspace_id": spawner.conversation_id})
    record = child.place(
        spawner.model_copy(update={"session_id": name}), thread_id=name, depth=depth, delivery=DeliveryMode.WAKE
    )
    return Acceptance(session=record, parent_thread_id=spawner.session_id, thread_name=name, spawns=True)


def ref_of(acceptance: Acceptance) -> SessionRef:
    return acceptance.session.ref


async def accepted(pool: Pool, *wanted: Acceptance) -> list[bool]:
    """Return whether each session was accepted; the others are refused because nothing may start there."""
    answers = await sessions.accept_all(pool, wanted)
    assert all(answer.session is not None or answer == Accepted(cancelled=True) for answer in answers)
    return [answer.session is not None for answer in answers]


async def cancel(pool: Pool, ref: SessionRef, scope: Literal[Scope.TREE] | None = None) -> bool:
    return await sessions.request_cancel(pool, ref, RecordedStop(reason=Reason.CALLER_CANCEL, by="x", scope=scope))


@pytest.mark.exactly_once
async def test_cancelled_tree_and_ended_session_accept_no_child(pool: Pool, accept: Accept) -> None:
    root = await accept()
    first = child_of(root)
    assert await accepted(pool, first) == [True]
    below = child_of(ref_of(first), 2)
    await cancel(pool, root)  # only this session: others may continue and start
    assert await accepted(pool, below, child_of(root)) == [True, True]
    # the cancel is already recorded, and its scope is widened now
    assert not await cancel(pool, root, scope=Scope.TREE)
    late = [child_of(ref_of(below), 3), child_of(root)]
    assert await accepted(pool, *late) == [False, False]
    assert await sessions.by_ids(pool, "default", [ref_of(one).session_id for one in late]) == {}

    ended = await accept()
    await end(pool, ended, Reason.GOAL_REACHED)
    assert await accepted(pool, child_of(ended)) == [False]


@pytest.mark.exactly_once
async def test_a_child_that_is_being_accepted_is_waited_for_and_found(pool: Pool, accept: Accept) -> None:
    root = await accept()
    middle = child_of(root)
    await accepted(pool, middle)
    wanted = child_of(ref_of(middle), 2)
    async with pool.acquire() as connection:
        spawning = connection.transaction()
        await spawning.start()
        await connection.execute("SELECT accept_session($1::jsonb)", to_json(acceptance_document(wanted)))
        cancelling = asyncio.create_task(cancel(pool, root, scope=Scope.TREE))
        await asyncio.sleep(0.3)
        assert not cancelling.done()
        await spawning.commit()
    assert await cancelling
    found = await threads.find_descendants(pool, "default", root.session_id)
    assert set(found) == {ref_of(middle).session_id, ref_of(wanted).session_id}
