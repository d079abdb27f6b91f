"""Figures over all tenants, for operators."""

from store.database import Pool


async def sessions_by_status(pool: Pool) -> dict[str, int]:
    rows = await pool.fetch("SELECT status, n FROM count_sessions()")
    return {row["status"]: row["n"] for row in rows}
