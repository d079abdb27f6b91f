"""Endings: the one of a session, and those that no workflow writes: of one that never began, or is only a copy."""

import json
from typing import Any

from store import accepting
from store.accepting import Accepted, IdempotencyRecord
from store.database import Pool, call


async def end_queued(pool: Pool, tenant: str, session_id: str, document: dict[str, Any]) -> bool:
    """End a session that waits in a queue; False if it has begun or ended meanwhile."""
    async with pool.acquire() as connection, connection.transaction():
        waits = await connection.fetchval(
            """SELECT 1 FROM sessions WHERE tenant = $1 AND id = $2 AND status = 'submitted' AND NOT live
                  FOR UPDATE""",
            tenant,
            session_id,
        )
        if waits:
            await connection.execute("SELECT finish_session($1::jsonb)", json.dumps(document))
        return waits is not None


async def accept_ended(
    pool: Pool,
    tenant: str,
    session: dict[str, Any],
    events: list[dict[str, Any]],
    ending: dict[str, Any],
    idempotency: IdempotencyRecord | None,
    **more: Any,
) -> Accepted:
    """A session that is accepted and ended in one transaction: a point to go on from, where nothing was executed."""
    async with pool.acquire() as connection, connection.transaction():
        accepted = await accepting.accept(connection, tenant, session, [], events, idempotency, **more)
        if accepted == Accepted():
            await connection.execute("SELECT finish_session($1::jsonb)", json.dumps(ending))
        return accepted


async def finish(pool: Pool, document: dict[str, Any]) -> dict[str, Any]:
    """Write the one ending; answers what stands, also if the session had ended before."""
    answer: dict[str, Any] = json.loads(await call(pool, "finish_session", json.dumps(document)))
    return answer
