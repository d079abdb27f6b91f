"""Tool calls: claimed before the effect, recorded after it, fenced by holder and attempt."""

from collections.abc import Sequence

from pydantic import BaseModel, Field, Json

from domain.messages import ReplyBody
from domain.sessions.session import CallState, RemoteCall, ToolCallResult
from domain.sessions.writes import ToolClaim, ToolCommit, ToolHold
from store.database import Pool, call
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
    spent: bool = False  # the tree's budget of tool calls does not allow it


async def claim(pool: Pool, claim: ToolClaim) -> ToolClaimResult:
    return ToolClaimResult.model_validate_json(await call(pool, "claim_tool", claim))


async def commit(pool: Pool, commit: ToolCommit) -> bool:
    """Write the result; False if a newer attempt holds the call, so that this result was dropped."""
    return bool(await call(pool, "commit_tool", commit))


async def hold(pool: Pool, hold: ToolHold) -> bool:
    """Keep the handle of a call that continues elsewhere. False: a newer attempt holds the call."""
    return bool(await call(pool, "hold_tool", hold))


async def remote(pool: Pool, tenant: str, node: str, index: int) -> RemoteCall | None:
    found = await pool.fetchval(
        "SELECT remote FROM tool_calls WHERE tenant = $1 AND node = $2 AND call_index = $3", tenant, node, index
    )
    return RemoteCall.model_validate_json(found) if found else None


async def results(pool: Pool, tenant: str, node: str) -> list[ToolCallResult]:
    rows = await pool.fetch(
        """SELECT call_index AS index, state, result AS text FROM tool_calls
            WHERE tenant = $1 AND node = $2 ORDER BY call_index""",
        tenant,
        node,
    )
    return [ToolCallResult(**row) for row in rows]


async def up_to_date(pool: Pool, tenant: str, sessions: Sequence[SessionRow]) -> list[SessionRow]:
    """The sessions with the tool calls that they have made by now: a row counts them with its next model call."""
    running = [session.id for session in sessions if not session.status.terminal]
    if not running:
        return list(sessions)
    rows = await pool.fetch(
        """SELECT c.session_id, count(*) AS made
             FROM tool_calls c JOIN messages m ON m.tenant = c.tenant AND m.id = c.node
            WHERE c.tenant = $1 AND c.session_id = ANY($2::text[]) AND c.state <> 'started' GROUP BY 1""",
        tenant,
        running,
    )
    made = {row["session_id"]: row["made"] for row in rows}
    return [_with_calls(session, made.get(session.id, 0)) for session in sessions]


def _with_calls(session: SessionRow, made: int) -> SessionRow:
    usage = session.usage
    counted = usage.model_copy(update={"tool_invocations": max(usage.tool_invocations, made)})
    return session.model_copy(update={"usage": counted})
