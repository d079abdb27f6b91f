"""Tool calls: claimed before the effect, recorded after it, fenced by holder and attempt; the ledger of effects."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from errand.models import EffectPage, EffectRecord, Source
from pydantic import BaseModel, Field, Json

from domain.messages import ReplyBody
from domain.schedules import Mission
from domain.sessions.session import CallState, RemoteCall, Status, ToolCallResult, Usage, state_of
from domain.sessions.writes import ToolAttempt, ToolClaim, ToolCommit
from store import runs
from store.database import Connection, Pool, call
from store.missions import SESSIONS
from store.sessions import SessionRow


class ToolClaimResult(BaseModel):
    go: bool
    dry: bool = False  # to be described, not done
    again: bool = False  # an earlier attempt may have begun it
    state: CallState | None = None
    text: str | None = None
    plan: str | None = None
    workspace_version: int | None = None
    body: Json[ReplyBody] | None = None  # of the node that made the call
    variables: Json[dict[str, str]] = Field(default_factory=dict)  # the session's
    remote: Json[RemoteCall] | None = None  # the handle of a call that continues elsewhere
    environment: str | None = None  # in which the session works
    spent: bool = False  # the tree's budget of tool calls does not allow it
    usage: Json[Usage] | None = None  # of a model that the recorded call asked


async def claim(pool: Pool, claim: ToolClaim) -> ToolClaimResult:
    return ToolClaimResult.model_validate_json(await call(pool, "claim_tool", claim))


async def commit(pool: Pool, commit: ToolCommit) -> bool:
    """Write the result; False if a newer attempt holds the call, so that this result was dropped."""
    return bool(await call(pool, "commit_tool", commit))


async def hold(pool: Pool, attempt: ToolAttempt, remote: RemoteCall) -> None:
    """Keep the handle of a call that continues elsewhere."""
    async with pool.acquire() as connection, connection.transaction():
        await check_attempt(connection, attempt)
        sql = "UPDATE tool_calls SET remote = $4 WHERE tenant = $1 AND node = $2 AND call_index = $3"
        kept = remote.model_dump_json(exclude_defaults=True)
        await connection.execute(sql, attempt.tenant, attempt.node, attempt.call_index, kept)


async def check_attempt(connection: Connection, attempt: ToolAttempt) -> None:
    """Refuse the writes of a transaction whose attempt no longer makes its call. A newer one waits until it ends."""
    sql = "SELECT check_run($1, $2, $3, true, false)"
    await connection.execute(sql, attempt.tenant, attempt.session_id, attempt.run)
    sql = """SELECT true FROM tool_calls WHERE tenant = $1 AND node = $2 AND call_index = $3
                AND holder = $4 AND attempt = $5 AND state = 'started' FOR SHARE"""
    found = await connection.fetchval(
        sql, attempt.tenant, attempt.node, attempt.call_index, attempt.holder, attempt.attempt
    )
    if found is None:
        raise runs.NotCurrentAttempt("A newer attempt has this call.")


async def get_remote(pool: Pool, tenant: str, node: str, index: int) -> RemoteCall | None:
    sql = "SELECT remote FROM tool_calls WHERE tenant = $1 AND node = $2 AND call_index = $3"
    found = await pool.fetchval(sql, tenant, node, index)
    return RemoteCall.model_validate_json(found) if found else None


async def get_results(pool: Pool, tenant: str, node: str) -> list[ToolCallResult]:
    sql = """SELECT call_index AS index, state, result AS text, shown AS files FROM tool_calls
              WHERE tenant = $1 AND node = $2 ORDER BY call_index"""
    return [ToolCallResult(**{**row, "files": json.loads(row["files"])}) for row in await pool.fetch(sql, tenant, node)]


async def count_calls(pool: Pool, tenant: str, sessions: Sequence[SessionRow]) -> list[SessionRow]:
    """The sessions with the tool calls that they have made by now: a row counts them with its next model call."""
    running = [session.id for session in sessions if not session.status.terminal]
    if not running:
        return list(sessions)
    sql = """SELECT c.session_id, count(*) AS made
               FROM tool_calls c JOIN messages m ON m.tenant = c.tenant AND m.id = c.node
              WHERE c.tenant = $1 AND c.session_id = ANY($2::text[]) AND c.state <> 'started' GROUP BY 1"""
    rows = await pool.fetch(sql, tenant, running)
    made = {row["session_id"]: row["made"] for row in rows}
    return [_with_calls(session, made.get(session.id, 0)) for session in sessions]


def _with_calls(session: SessionRow, made: int) -> SessionRow:
    usage = session.usage
    counted = usage.model_copy(update={"tool_invocations": max(usage.tool_invocations, made)})
    return session.model_copy(update={"usage": counted})


# The ledger of effects and the sources of a result, both read from the records of tool calls.


MOST = 5_000


async def get_ledger(pool: Pool, tenant: str, session_id: str) -> EffectPage:
    """The effects of a session and of the subagents below it, in order; for a dry run, those it would have had."""
    sql = """WITH RECURSIVE tree AS (
                 SELECT id, status FROM sessions WHERE tenant = $1 AND id = $2
                 UNION SELECT s.id, s.status FROM sessions s JOIN tree t ON s.tenant = $1 AND s.spawned_by = t.id)
             SELECT c.kind, c.tool, c.description, c.state, c.dry, c.node || ':' || c.call_index AS idempotency_key,
                    c.session_id, c.started_at, c.ended_at, tree.status
               FROM tree JOIN tool_calls c ON c.tenant = $1 AND c.session_id = tree.id AND c.kind IS NOT NULL
              ORDER BY c.started_at, c.node, c.call_index LIMIT $3"""
    rows = await pool.fetch(sql, tenant, session_id, MOST + 1)
    found = []
    for row in rows[:MOST]:
        values = dict(row)
        ended = Status(values.pop("status")).terminal
        values["state"] = state_of(CallState(values["state"]), dry=values.pop("dry"), ended=ended)
        found.append(EffectRecord(**values))
    return EffectPage(items=found, complete=len(rows) <= MOST)


async def find_sources(pool: Pool, session: SessionRow) -> list[Source]:
    """The sources that entered a session's context, and when: messages, answers, files, pages, and the session that it
    continued."""
    sql = """SELECT 'message' AS kind, id AS name, created_at AS at,
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
              ORDER BY at LIMIT $5"""
    rows = await pool.fetch(sql, session.tenant, session.id, session.created_at, session.parent_session_id, MOST)
    sql = """SELECT sources FROM tool_calls WHERE tenant = $1 AND session_id = $2 AND sources <> '[]'
              ORDER BY started_at, node, call_index LIMIT $3"""
    read = await pool.fetch(sql, session.tenant, session.id, MOST)
    found = [Source(**row) for row in rows]
    return found + [Source(**source) for row in read for source in json.loads(row["sources"])]


async def find_models_used(pool: Pool, session: SessionRow) -> list[str]:
    """The models that really answered, in the order of their first answer."""
    sql = """SELECT data::jsonb ->> 'model' AS model, min(seq) AS first FROM events
              WHERE tenant = $1 AND session_id = $2 AND type = 'usage_updated' GROUP BY 1 ORDER BY 2"""
    return [row["model"] for row in await pool.fetch(sql, session.tenant, session.id)]


# The tool calls of a mission, for the risks that begin after a number of them.


async def calls_of_mission(pool: Pool, mission: Mission, start: datetime) -> list[tuple[str, Any]]:
    """The tool and the arguments of each call since then. The arguments are None if they are no longer stored."""
    sql = f"""SELECT t.tool, t.call_index, m.body
                FROM tool_calls t JOIN ({SESSIONS}) s ON s.tenant = t.tenant AND s.id = t.session_id
                LEFT JOIN messages m ON m.tenant = t.tenant AND m.id = t.node AND m.kind = 'assistant'
               WHERE t.started_at >= $4"""
    rows = await pool.fetch(sql, mission.tenant, mission.conversation_id, mission.id, start)
    return [(row["tool"], _arguments(row["body"], row["call_index"])) for row in rows]


def _arguments(body: str | None, index: int) -> Any:
    calls = ReplyBody.model_validate_json(body).calls if body is not None else []
    return calls[index].arguments if index < len(calls) else None
