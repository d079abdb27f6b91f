"""A tree that is cancelled grows no more, whichever of the two came first."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from domain.events import CancelRequested
from domain.ids import new_id
from domain.sessions.session import Limits, Reason, SessionRef
from store import accepting, children, endings, sessions
from store.accepting import Accepted
from store.database import Pool
from store.events import to_row
from tests.behaviour.store.conftest import Accept
from tests.behaviour.store.test_sessions import ending


def child_of(spawner: SessionRef, depth: int = 1) -> dict[str, Any]:
    name = new_id()
    document = {
        **{"id": name, "conversation_id": spawner.conversation_id, "thread_id": name, "thread_name": name},
        **{"parent_thread_id": spawner.session_id, "workspace_id": spawner.conversation_id, "depth": depth},
        **{"session_type": "async_subagent", "spawned_by": spawner.session_id, "trigger": "async_task"},
        **{"agent_owner": "*", "agent": "tester", "agent_version": 1, "models": ["offline"], "title": "a child"},
        **{"spec": "{}", "limits": Limits().model_dump_json(), "created_by": "test", "delivery": "wake"},
        "deadline": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
    }
    return accepting.acceptance(spawner.tenant, document, [], [], spawns=True)


def ref_of(acceptance: dict[str, Any]) -> SessionRef:
    row = acceptance["session"]
    return SessionRef(tenant="default", session_id=row["id"], conversation_id=row["conversation_id"])


async def cancel(pool: Pool, ref: SessionRef, **scope: str) -> bool:
    wish = {"reason": "caller_cancel", "by": "x", "note": "", "at": "2026-01-01T00:00:00Z", **scope}
    event = to_row(ref, CancelRequested(reason=Reason.CALLER_CANCEL, by="x"))
    return await sessions.request_cancel(pool, ref, wish, event)


@pytest.mark.proves("S0-43")
async def test_nothing_begins_below_a_cancelled_tree_or_an_ended_session(pool: Pool, accept: Accept) -> None:
    root = await accept()
    first = child_of(root)
    assert await accepting.accept_all(pool, [first]) == [Accepted()]
    below = child_of(ref_of(first), 2)
    await cancel(pool, root)  # of the session alone: others may go on, and begin
    assert await accepting.accept_all(pool, [below, child_of(root)]) == [Accepted(), Accepted()]
    assert not await cancel(pool, root, scope="tree")  # noted before, and widened now
    late = [child_of(ref_of(below), 3), child_of(root)]
    assert await accepting.accept_all(pool, late) == [Accepted(cancelled=True)] * 2
    assert await sessions.by_ids(pool, "default", [ref_of(one).session_id for one in late]) == {}

    ended = await accept()
    await endings.finish(pool, ending(ended, Reason.GOAL_REACHED))
    assert await accepting.accept_all(pool, [child_of(ended)]) == [Accepted(cancelled=True)]


@pytest.mark.proves("S0-43")
async def test_a_child_that_is_being_accepted_is_waited_for_and_found(pool: Pool, accept: Accept) -> None:
    root = await accept()
    middle = child_of(root)
    await accepting.accept_all(pool, [middle])
    wanted = child_of(ref_of(middle), 2)
    async with pool.acquire() as connection:
        spawning = connection.transaction()
        await spawning.start()
        await connection.execute("SELECT accept_session($1::jsonb)", json.dumps(wanted))
        cancelling = asyncio.create_task(cancel(pool, root, scope="tree"))
        await asyncio.sleep(0.3)
        assert not cancelling.done()
        await spawning.commit()
    assert await cancelling
    found = await children.descendants(pool, "default", root.session_id)
    assert set(found) == {ref_of(middle).session_id, ref_of(wanted).session_id}


async def test_an_outcome_wakes_nobody_in_a_cancelled_tree(pool: Pool, accept: Accept) -> None:
    for scope, held in (({}, False), ({"scope": "tree"}, True)):
        root = await accept()
        one = child_of(root)
        await accepting.accept_all(pool, [one])
        await cancel(pool, root, **scope)
        document = ending(ref_of(one), Reason.CALLER_CANCEL) | {"message_id": new_id()}
        for _ in range(2):  # asked again, it says the same
            stands = await endings.finish(pool, document)
            assert stands["held"] is held and stands["mail"]
        waits = await pool.fetchval("SELECT count(*) FROM inbox WHERE conversation_id = $1", root.conversation_id)
        assert waits == (0 if held else 1)
