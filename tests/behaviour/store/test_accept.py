"""Sessions of one conversation that are accepted at the same time wait for each other, and in their order."""

import asyncio

import pytest

from domain.sessions.session import SessionRef
from store import accepting, conversation_reads
from store.accepting import Accepted
from store.database import Pool
from tests.behaviour.store.conftest import Accept, new_session


async def queue(pool: Pool, root: SessionRef) -> Accepted:
    return await accepting.accept(pool, root.tenant, new_session(root.conversation_id), [], [], queue=True)


async def test_many_at_once(pool: Pool, accept: Accept) -> None:
    root = await accept()
    assert await asyncio.gather(*(queue(pool, root) for _ in range(40))) == [Accepted()] * 40


@pytest.mark.proves("S0-B01")
async def test_nobody_overtakes_what_waits(pool: Pool, accept: Accept) -> None:
    """Between two turns nothing is live, and the next one's turn it is all the same."""
    root = await accept()
    first, late = new_session(root.conversation_id), new_session(root.conversation_id)
    assert await accepting.accept(pool, root.tenant, first, [], [], queue=True) == Accepted()
    assert await queue(pool, root) == Accepted()
    await pool.execute("UPDATE sessions SET live = false, status = 'completed' WHERE id = $1", root.session_id)
    refused = await accepting.accept(pool, root.tenant, late, [], [], in_order=True)
    assert refused.busy == first["id"]
    await pool.execute("UPDATE sessions SET status = 'cancelled' WHERE conversation_id = $1", root.conversation_id)
    assert await accepting.accept(pool, root.tenant, late, [], [], in_order=True) == Accepted()


async def test_siblings_keep_the_order_of_their_calls(pool: Pool, accept: Accept) -> None:
    """Their ids derive from the calls, and tell nothing."""
    root = await accept()
    listed = [new_session(root.conversation_id) for _ in range(5)]
    for place, one in enumerate(listed):
        one["thread_id"] = one["id"] = f"{9 - place}-{one['id']}"
    documents = [accepting.acceptance(root.tenant, one, [], []) for one in listed]
    assert await accepting.accept_all(pool, documents) == [Accepted()] * 5
    branches = await conversation_reads.branches(pool, root.tenant, root.conversation_id, 10)
    assert [branch.session_id for branch in branches] == [root.session_id, *(one["id"] for one in listed)]
