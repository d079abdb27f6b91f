"""Verdicts on acceptance criteria: written once for each round of a session, and read with its result."""

from domain.sessions.acceptance import AcceptanceRound
from domain.sessions.writes import AcceptanceRecord, CheckBegin, CheckEnd
from store.database import Pool, call


async def get(pool: Pool, tenant: str, session_id: str) -> AcceptanceRound | None:
    text = await pool.fetchval("SELECT acceptance FROM sessions WHERE tenant = $1 AND id = $2", tenant, session_id)
    return AcceptanceRound.model_validate_json(text) if text else None


async def begin_command(pool: Pool, check: CheckBegin) -> None:
    """Enter a command into the ledger before it runs."""
    await call(pool, "begin_check", check)


async def end_command(pool: Pool, check: CheckEnd) -> None:
    await call(pool, "end_check", check)


async def record(pool: Pool, record: AcceptanceRecord) -> None:
    """Write a round. A round that was written before stays unchanged."""
    await call(pool, "record_acceptance", record)
