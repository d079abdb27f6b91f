"""Verdicts on acceptance criteria: written once for each round of a session, and read with its result."""

from typing import Any

from pydantic import BaseModel

from domain.sessions.acceptance import CriterionVerdict
from domain.sessions.tool_writes import CheckBegin, CheckEnd
from store.database import Pool, call


class Round(BaseModel):
    """The newest check of a session's criteria."""

    round: int
    passed: bool
    verdicts: list[CriterionVerdict]


async def get(pool: Pool, tenant: str, session_id: str) -> Round | None:
    text = await pool.fetchval("SELECT acceptance FROM sessions WHERE tenant = $1 AND id = $2", tenant, session_id)
    return Round.model_validate_json(text) if text else None


async def begin_command(pool: Pool, check: CheckBegin) -> None:
    """Enter a command into the ledger before it runs."""
    await call(pool, "begin_check", check)


async def end_command(pool: Pool, check: CheckEnd) -> None:
    await call(pool, "end_check", check)


async def record(pool: Pool, document: dict[str, Any]) -> None:
    """A round that was written before is left as it is."""
    await call(pool, "record_acceptance", document)
