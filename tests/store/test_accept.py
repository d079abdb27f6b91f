"""Sessions of one conversation that are accepted at the same time wait for each other, and in their order."""

import asyncio

import pytest

from domain.session import SessionRef
from store import accepting
from store.accepting import Accepted
from store.database import Pool
from tests.store.conftest import Accept, new_session


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
