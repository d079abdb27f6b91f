"""The ledger of effects and the sources of a result, both read from the records of tool calls."""

import json

from pydantic import BaseModel, Field

from domain.sessions.session import CallState, EffectRecord, Source, Status, state_of
from store.database import Pool
from store.sessions import SessionRow

MOST = 5_000


class Ledger(BaseModel):
    items: list[EffectRecord]
    complete: bool = Field(description=f"false: there are more than {MOST}, and these are the first")


async def ledger(pool: Pool, tenant: str, session_id: str) -> Ledger:
    """The effects of a session and of the subagents below it, in order; for a dry run, those it would have had."""
    rows = await pool.fetch(
        """WITH RECURSIVE tree AS (
               SELECT id, status FROM sessions WHERE tenant = $1 AND id = $2
               UNION SELECT s.id, s.status FROM sessions s JOIN tree t ON s.tenant = $1 AND s.spawned_by = t.id)
           SELECT c.kind, c.tool, c.description, c.state, c.dry, c.node || ':' || c.call_index AS idempotency_key,
                  c.session_id, c.started_at, c.ended_at, tree.status
             FROM tree JOIN tool_calls c ON c.tenant = $1 AND c.session_id = tree.id AND c.kind IS NOT NULL
            ORDER BY c.started_at, c.node, c.call_index LIMIT $3""",
        tenant,
        session_id,
        MOST + 1,
    )
    found = []
    for row in rows[:MOST]:
        values = dict(row)
        ended = Status(values.pop("status")).terminal
        values["state"] = state_of(CallState(values["state"]), dry=values.pop("dry"), ended=ended)
        found.append(EffectRecord(**values))
    return Ledger(items=found, complete=len(rows) <= MOST)


async def sources(pool: Pool, session: SessionRow) -> list[Source]:
    """The sources that entered a session's context, and when: messages, answers, files, pages, and the session that it
    continued."""
    rows = await pool.fetch(
        """SELECT 'message' AS kind, id AS name, created_at AS at,
                  encode(sha256(convert_to(parts, 'UTF8')), 'hex') AS sha256
             FROM inbox WHERE tenant = $1 AND taken_by = $2
           UNION ALL
           SELECT 'answer', id, answered_at, encode(sha256(convert_to(answer, 'UTF8')), 'hex')
             FROM input_requests WHERE tenant = $1 AND session_id = $2 AND status = 'answered'
           UNION ALL
           SELECT 'context_file', f.name, $3, f.sha256
             FROM file_uses u JOIN files f ON f.tenant = u.tenant AND f.id = u.file_id
            WHERE u.tenant = $1 AND u.session_id = $2
           UNION ALL
           SELECT 'session', id, ended_at, NULL FROM sessions WHERE tenant = $1 AND id = $4
            ORDER BY at LIMIT $5""",
        session.tenant,
        session.id,
        session.created_at,
        session.parent_session_id,
        MOST,
    )
    read = await pool.fetch(
        """SELECT sources FROM tool_calls WHERE tenant = $1 AND session_id = $2 AND sources <> '[]'
            ORDER BY started_at, node, call_index LIMIT $3""",
        session.tenant,
        session.id,
        MOST,
    )
    found = [Source(**row) for row in rows]
    return found + [Source(**source) for row in read for source in json.loads(row["sources"])]


async def models_used(pool: Pool, session: SessionRow) -> list[str]:
    """The models that really answered, in the order of their first answer."""
    rows = await pool.fetch(
        """SELECT data::jsonb ->> 'model' AS model, min(seq) AS first FROM events
            WHERE tenant = $1 AND session_id = $2 AND type = 'usage_updated' GROUP BY 1 ORDER BY 2""",
        session.tenant,
        session.id,
    )
    return [row["model"] for row in rows]
