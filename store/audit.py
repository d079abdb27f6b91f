"""The audit log: entries are appended in the transaction that they record, and verified as a whole."""

from typing import Any

import asyncpg
from errand.models import AuditEntry, Break, ChainedEntry

from domain.audit import MISSING, TENANT, Head, Verifier
from store.database import Connection, Pool, fetch_all

_COLUMNS = "tenant, chain, seq, at, actor, action, session_id, subject, digest, previous, hash"
EVERYBODY = "*"  # its chain holds the shipped definitions
BATCH = 2_000
SEALED_AT_ONCE = 200  # heads in one entry


async def change(
    pool: Pool,
    tenant: str,
    by: str,
    action: str,
    sql: str,
    *values: object,
    chain: str = TENANT,
    session_id: str | None = None,
    subject: str | None = None,
    inputs: str | None = None,
) -> asyncpg.Record | None:
    """Make a change, and write its entry; without a `subject` it is the row's name. `sql` takes the tenant and the
    values, and returns the row; without one nothing was changed."""
    async with pool.acquire() as connection, connection.transaction():
        row: asyncpg.Record | None = await connection.fetchrow(sql, tenant, *values)
        if row is not None:
            subject = row["name"] if subject is None else subject
            await append(connection, tenant, chain, by, action, session_id=session_id, subject=subject, inputs=inputs)
    return row


async def append(
    connection: "Connection | Pool",
    tenant: str,
    chain: str,
    actor: str,
    action: str,
    *,
    session_id: str | None = None,
    subject: str = "",
    inputs: str | None = None,
) -> None:
    """Append an entry in the transaction that it records, as its last statement: the chain's lock is held until
    commit."""
    sql = "SELECT append_audit($1, $2, $3, $4, $5, $6, $7)"
    await connection.execute(sql, tenant, chain, actor, action, session_id, subject, inputs)


async def find(
    pool: Pool,
    tenant: str,
    *,
    session_id: str | None = None,
    chain: str | None = None,
    before: int | None = None,
    limit: int,
) -> list[AuditEntry]:
    """The entries of the tenant and those that concern everybody, newest first."""
    sql = f"""SELECT {_COLUMNS}, number FROM audit
               WHERE (tenant = $1 OR (tenant = $2 AND $3::text IS NULL AND $4::text IS NULL))
                 AND ($3::text IS NULL OR session_id = $3) AND ($4::text IS NULL OR chain = $4)
                 AND ($5::bigint IS NULL OR number < $5) ORDER BY number DESC LIMIT $6"""
    return await fetch_all(pool, AuditEntry, sql, tenant, EVERYBODY, session_id, chain, before, limit)


async def verify(pool: Pool, tenant: str, expected: str | None = None) -> Verifier:
    """Verify all chains of a tenant, and the one that concerns everybody, in one snapshot."""
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        verdict = await _verify(connection, tenant, expected)
        if verdict.found is None and (silent := await connection.fetchval(_WITHOUT_LOG, tenant)) is not None:
            verdict.found = Break(chain=silent, seq=1, problem=f"{MISSING}: the conversation has sessions and no log")
        if verdict.found is None and (shared := (await _verify(connection, EVERYBODY)).found) is not None:
            verdict.found = shared.model_copy(update={"chain": EVERYBODY})
    return verdict


async def verify_chain(pool: Pool, tenant: str, chain: str) -> Verifier:
    """Verify one chain of a tenant by its own links and its recorded head."""
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        verdict = await _verify(connection, tenant, chain=chain)
        if verdict.found is None and not verdict.entries:  # accepting its first session wrote the first entry
            verdict.found = Break(chain=chain, seq=1, problem=MISSING)
    return verdict


async def _verify(
    connection: Connection, tenant: str, expected: str | None = None, *, chain: str | None = None
) -> Verifier:
    """Verify all chains, or one."""
    verdict, last = Verifier(expected), (chain or "", 0)
    only, one = ("AND chain = ${}", (chain,)) if chain is not None else ("", ())
    while verdict.found is None:
        sql = f"""SELECT {_COLUMNS} FROM audit WHERE tenant = $1 AND (chain, seq) > ($2, $3) {only.format(5)}
                   ORDER BY chain, seq LIMIT $4"""
        rows = await connection.fetch(sql, tenant, *last, BATCH, *one)
        verdict.read(ChainedEntry(**row) for row in rows)
        if len(rows) < BATCH:
            break
        last = (rows[-1]["chain"], rows[-1]["seq"])
    sql = f"SELECT chain, seq, hash FROM audit_heads WHERE tenant = $1 {only.format(2)}"
    heads: list[Any] = await connection.fetch(sql, tenant, *one)
    verdict.end(Head(**row) for row in heads)
    return verdict


# Accepting a session also writes the first entry of its conversation's chain.
_WITHOUT_LOG = """SELECT min(s.conversation_id) FROM sessions s WHERE s.tenant = $1 AND NOT EXISTS (
                      SELECT 1 FROM audit a WHERE a.tenant = s.tenant AND a.chain = s.conversation_id)"""


async def seal(pool: Pool) -> int:
    """Vouch for all chains that have grown; returns their number."""
    total = sealed = int(await pool.fetchval("SELECT seal_audit($1)", SEALED_AT_ONCE))
    while sealed >= SEALED_AT_ONCE:
        sealed = int(await pool.fetchval("SELECT seal_audit($1)", SEALED_AT_ONCE))
        total += sealed
    return total
