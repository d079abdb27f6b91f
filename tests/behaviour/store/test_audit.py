"""The audit log against somebody with access to the database: changes are refused, or else noticed and named."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from domain.ids import new_id
from store import audit
from store.database import Pool
from tests.behaviour.store.conftest import Accept


@asynccontextmanager
async def unguarded(pool: Pool) -> AsyncIterator[None]:
    """The audit log without the triggers that refuse changes."""
    await pool.execute("ALTER TABLE audit DISABLE TRIGGER USER")
    try:
        yield
    finally:
        await pool.execute("ALTER TABLE audit ENABLE TRIGGER USER")


async def test_the_database_refuses_to_change_the_log(pool: Pool, accept: Accept) -> None:
    await accept()
    for statement in ("UPDATE audit SET actor = 'nobody'", "DELETE FROM audit", "TRUNCATE audit"):
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            await pool.execute(statement)


WITH_HEAD = "WITH h AS (DELETE FROM audit_heads WHERE chain = $1) DELETE FROM audit WHERE chain = $1"
SHORTER = """WITH h AS (UPDATE audit_heads SET seq = 2, hash = (SELECT hash FROM audit WHERE chain = $1 AND seq = 2)
                         WHERE chain = $1) DELETE FROM audit WHERE chain = $1 AND seq = 3"""
SWAPPED = """UPDATE audit a SET previous = b.previous, hash = b.hash
               FROM audit b WHERE a.chain = $1 AND a.seq = 2 AND b.chain = a.chain AND b.seq = 3"""


@pytest.mark.parametrize(
    ("statement", "seq", "said"),
    [
        ("UPDATE audit SET hash = repeat('0', 64) WHERE chain = $1 AND seq = 3", 3, "it was changed"),
        ("UPDATE audit_heads SET hash = repeat('0', 64) WHERE chain = $1", 3, "it is not the entry that the chain"),
        ("UPDATE audit_heads SET seq = 2 WHERE chain = $1", 3, "it is not the entry that the chain ended with"),
        (SWAPPED, 2, "it does not follow from the entry before it"),
        (SHORTER, 3, "it is missing, and it was sealed"),
        ("UPDATE audit SET actor = 'somebody else' WHERE chain = $1 AND seq = 2", 2, "it was changed"),
        ("UPDATE audit SET at = at + interval '1 microsecond' WHERE chain = $1 AND seq = 1", 1, "it was changed"),
        ("DELETE FROM audit WHERE chain = $1 AND seq = 2", 2, "it is missing"),
        ("DELETE FROM audit WHERE chain = $1 AND seq = 3", 3, "it is missing"),
        ("DELETE FROM audit WHERE chain = $1", 1, "it is missing"),
        (WITH_HEAD, 1, "it is missing, and it was sealed"),
    ],
)
@pytest.mark.proves("S1-65")
async def test_changed_and_removed_entries_are_named(
    pool: Pool, accept: Accept, statement: str, seq: int, said: str
) -> None:
    tenant = new_id()
    sessions = [await accept(tenant) for _ in range(2)]
    for number in (2, 3):
        for ref in sessions:
            await audit.append(pool, tenant, ref.conversation_id, "ann", "act", subject=str(number), inputs="words")
    assert await audit.seal(pool) >= 2
    whole = await audit.verify(pool, tenant)
    assert (whole.found, whole.chains, whole.entries) == (None, 3, 7)
    chain = sessions[0].conversation_id
    async with unguarded(pool):
        await pool.execute(statement, chain)
    found = (await audit.verify(pool, tenant)).found
    assert found is not None and (found.chain, found.seq) == (chain, seq) and found.problem.startswith(said)
    # a reader of this chain alone sees the same, except that the chain was cut together with the record of its end
    alone = (await audit.verify_chain(pool, tenant, chain)).found
    if statement == SHORTER:
        assert alone is None
    else:
        assert alone is not None and (alone.chain, alone.seq) == (chain, seq)
        assert alone.problem.startswith("it is missing" if statement == WITH_HEAD else said)
    other = await audit.verify_chain(pool, tenant, sessions[1].conversation_id)
    assert (other.found, other.entries) == (None, 3)


async def test_shared_entries_are_verified_for_every_tenant(pool: Pool, accept: Accept) -> None:
    tenant = new_id()
    await accept(tenant)
    await audit.append(pool, audit.EVERYBODY, "", "operator", "define_agent", subject="shipped 1")
    assert (await audit.verify(pool, tenant)).found is None
    last = "tenant = '*' AND seq = (SELECT max(seq) FROM audit WHERE tenant = '*')"
    async with unguarded(pool):
        await pool.execute(f"UPDATE audit SET subject = 'shipped 2' WHERE {last}")
        found = (await audit.verify(pool, tenant)).found
        await pool.execute(f"UPDATE audit SET subject = 'shipped 1' WHERE {last}")
    assert found is not None and (found.chain, found.problem) == (audit.EVERYBODY, "it was changed")


@pytest.mark.parametrize("where", ["true", "chain <> ''"])
async def test_a_deleted_log_beside_sessions_is_a_break(pool: Pool, accept: Accept, where: str) -> None:
    """If its heads and seals are removed too, the log shows no trace of the chain, but the sessions do."""
    tenant = new_id()
    chain = (await accept(tenant)).conversation_id
    assert (await audit.verify(pool, tenant)).found is None
    async with unguarded(pool):
        await pool.execute(f"DELETE FROM audit WHERE tenant = $1 AND {where}", tenant)
        await pool.execute(f"DELETE FROM audit_heads WHERE tenant = $1 AND {where}", tenant)
    found = (await audit.verify(pool, tenant)).found
    assert found is not None and (found.chain, found.seq) == (chain, 1) and "no log" in found.problem
