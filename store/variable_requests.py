"""Variable requests: calls of subagents open them, people answer them once, and the conversation starts the
subagent."""

import json
from typing import Any

from domain.conversations.requests import Spawn
from domain.conversations.variable_request import VariableRequest, VariableRequestStatus
from store import audit
from store.database import Pool
from store.readable import readable

_COLUMNS = """id, tenant, conversation_id, thread_id, session_id, agent, name, instance, needs, spawn, status, attempts,
              created_at"""


async def open_request(pool: Pool, request: VariableRequest) -> VariableRequest:
    """Store a request. A repetition finds the first one, and so does a second call for a waiting instance of the same
    name."""
    await pool.execute(
        """INSERT INTO variable_requests
               (tenant, id, conversation_id, thread_id, session_id, agent, name, instance, needs, spawn)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING""",
        request.tenant,
        request.id,
        request.conversation_id,
        request.thread_id,
        request.session_id,
        request.agent,
        request.name,
        request.instance,
        json.dumps([one.model_dump(mode="json") for one in request.needs]),
        request.spawn.model_dump_json(),
    )
    row = await pool.fetchrow(
        f"""SELECT {_COLUMNS} FROM variable_requests
             WHERE tenant = $1 AND (id = $2 OR
                   ($5 AND instance AND thread_id = $3 AND name = $4 AND status <> 'started'))
             ORDER BY id <> $2 LIMIT 1""",
        request.tenant,
        request.id,
        request.thread_id,
        request.name,
        request.instance,
    )
    assert row is not None
    return _read(row)


async def get(pool: Pool, tenant: str, thread_id: str, request_id: str) -> VariableRequest | None:
    row = await pool.fetchrow(
        f"SELECT {_COLUMNS} FROM variable_requests WHERE tenant = $1 AND thread_id = $2 AND id = $3",
        tenant,
        thread_id,
        request_id,
    )
    return _read(row) if row else None


async def find(
    pool: Pool, tenant: str, status: VariableRequestStatus, conversation_id: str | None, limit: int
) -> list[VariableRequest]:
    """The requests, oldest first."""
    rows = await pool.fetch(
        f"""SELECT {_COLUMNS} FROM variable_requests
             WHERE tenant = $1 AND status = $2 AND ($3::text IS NULL OR conversation_id = $3) ORDER BY id LIMIT $4""",
        tenant,
        status,
        conversation_id,
        limit,
    )
    return [_read(row) for row in rows]


async def waiting_names(pool: Pool, tenant: str, thread_id: str, agent: str) -> list[str]:
    """The instances of an agent that wait to begin on this thread."""
    rows = await pool.fetch(
        """SELECT name FROM variable_requests
            WHERE tenant = $1 AND thread_id = $2 AND agent = $3 AND instance AND status <> 'started' ORDER BY id""",
        tenant,
        thread_id,
        agent,
    )
    return [row["name"] for row in rows]


async def answer(pool: Pool, request: VariableRequest, spawn: Spawn, by: str) -> VariableRequest | None:
    """Store the values once; None if somebody else has set some."""
    async with pool.acquire() as connection, connection.transaction():
        row = await connection.fetchrow(
            f"""UPDATE variable_requests
                   SET status = 'answered', spawn = $3, attempts = attempts + 1, answered_by = $4, answered_at = now()
                 WHERE tenant = $1 AND id = $2 AND status = 'open' RETURNING {_COLUMNS}""",
            request.tenant,
            request.id,
            spawn.model_dump_json(),
            by,
        )
        if row is None:
            return None
        chain, subject = request.conversation_id, f"variables {request.id}"
        await audit.append(
            connection, request.tenant, chain, by, "answer", session_id=request.session_id, subject=subject
        )
    return _read(row)


async def settle(pool: Pool, request: VariableRequest, *, started: bool) -> None:
    """Record that the conversation started the subagent, or refused to; after a refusal values can be set again."""
    await pool.execute(
        """UPDATE variable_requests SET status = CASE WHEN $4 THEN 'started' ELSE 'open' END
            WHERE tenant = $1 AND id = $2 AND status = 'answered' AND attempts = $3""",
        request.tenant,
        request.id,
        request.attempts,
        started,
    )


async def unstarted(pool: Pool, older_than_s: float, limit: int = 100) -> list[VariableRequest]:
    """Requests of all tenants that were answered a while ago but not started, because the process that took the values
    died."""
    rows = await pool.fetch(
        f"""SELECT {_COLUMNS} FROM variable_requests
             WHERE status = 'answered' AND answered_at < now() - make_interval(secs => $1)
             ORDER BY answered_at LIMIT $2""",
        older_than_s,
        limit,
    )
    return readable(rows, _read, "request")


def _read(row: Any) -> VariableRequest:
    fields = {**row, "needs": json.loads(row["needs"]), "spawn": json.loads(row["spawn"])}
    return VariableRequest.model_validate(fields)
