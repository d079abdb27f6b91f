"""The run of its workflow that owns a session, and the state for a run that takes the session over."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import asyncpg
from pydantic import BaseModel

from domain.messages import ASSISTANT
from domain.sessions.input_request import RequestKind
from domain.sessions.session import ModelReply, ResumePoint, SessionRef, SideName, preview
from domain.sessions.session_state import SessionState, StartedChild
from store import channels
from store.database import Connection, Pool
from store.sessions import SessionRow

REMEMBERED = 1_000  # messages and ended children, as many as the session's own state keeps
NAMED_CHILDREN = 20


class Holder(BaseModel):
    """The run that owns a session."""

    tenant: str
    session_id: str
    run_id: str | None


class NotCurrentRun(asyncpg.PostgresError):
    """Another run owns the session."""

    sqlstate = "ER001"

    @property
    def holder(self) -> Holder:
        return Holder.model_validate_json(self.detail or "")


class SessionEnded(asyncpg.PostgresError):
    """The session has ended, so nothing in it can begin."""

    sqlstate = "ER002"


class NotCurrentAttempt(asyncpg.PostgresError):
    """A newer attempt has this call, so nothing of this one is written."""

    sqlstate = "ER003"


REFUSALS = (NotCurrentRun, SessionEnded, NotCurrentAttempt)  # of writes that come too late


async def take_over(pool: Pool, holder: Holder, run: str) -> bool:
    """Give a session to another run; False if its owner has changed by now."""
    sql = """UPDATE sessions SET run_id = $4 WHERE tenant = $1 AND id = $2 AND run_id IS NOT DISTINCT FROM $3
             RETURNING id"""
    done = await pool.fetchval(sql, holder.tenant, holder.session_id, holder.run_id, run)
    return done is not None


async def check(connection: Connection, ref: SessionRef, run: str | None) -> None:
    """Refuse the writes of a transaction whose run does not own the session, or whose session has ended."""
    await connection.execute("SELECT check_run($1, $2, $3, true, false)", ref.tenant, ref.session_id, run)


async def state(pool: Pool, session: SessionRow) -> SessionState:
    """Rebuild the state of a session from what was committed, for a run that takes it over."""
    tenant, session_id = session.tenant, session.id
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        sql = """SELECT id, title, live, delivery = 'wake' AND NOT blocking AS wakes FROM sessions
                  WHERE tenant = $1 AND spawned_by = $2 ORDER BY id DESC LIMIT $3"""
        children = await connection.fetch(sql, tenant, session_id, REMEMBERED)
        sql = """SELECT id, taken_by, entered FROM inbox i WHERE tenant = $1 AND conversation_id = $4 AND thread_id = $3
                    AND (taken_by = $2 OR taken_by IS NULL AND NOT EXISTS (
                            SELECT 1 FROM sessions s WHERE s.tenant = $1 AND s.thread_id = $3 AND s.id <> $2
                               AND i.id = ANY (s.inbox)))
                  ORDER BY number DESC LIMIT $5"""
        messages = await connection.fetch(
            sql, tenant, session_id, session.thread_id, session.conversation_id, REMEMBERED
        )
        later = [row["id"] for row in messages if row["taken_by"] is None and row["id"] not in session.inbox]
        # those wait in the conversation until this session has ended
        apart = await channels.find_apart(connection, tenant, later) if later else set()
        sql = """SELECT (answer::jsonb ->> 'approved')::boolean FROM input_requests
                  WHERE tenant = $1 AND session_id = $2 AND kind = $3 ORDER BY created_at DESC, id DESC LIMIT 1"""
        approved = await connection.fetchval(sql, tenant, session_id, RequestKind.PLAN_APPROVAL)
        rounds = await connection.fetchval(
            "SELECT (jsonb_populate_record(NULL::acceptance_round, acceptance::jsonb)).round FROM sessions"
            " WHERE tenant = $1 AND id = $2",
            tenant,
            session_id,
        )
        sql = """SELECT side, body::jsonb ? 'immediate' AS immediate,
                        NOT body::jsonb @? '$.content[*] ? (@.type == "tool_call")'
                    AND body::jsonb ->> 'stop_reason' IS DISTINCT FROM 'interrupted' AS answers FROM messages
                  WHERE tenant = $1 AND session_id = $2 AND kind = $3 AND line = 'main' ORDER BY id"""
        sides = await connection.fetch(sql, tenant, session_id, ASSISTANT)
        point = await _point(connection, tenant, session_id, session.head) if session.head else None
    mine = [row for row in reversed(messages) if row["id"] not in apart]
    seen = [row["id"] for row in mine]
    entered = {row["id"] for row in mine if row["entered"]}
    waiting = [one for one in session.inbox if one not in entered]  # its first step was not committed
    waiting += [row["id"] for row in mine if row["taken_by"] is None and row["id"] not in session.inbox]
    start = session.workflow_input()
    first = start.first_state()
    if point is not None:
        replied = sides if start.sides else []
        place(first, point, [row["side"] for row in replied if not row["immediate"]])
        for line in filter(None, (first.line, first.waiting_line)):
            line.activated = line.activated or any(row["side"] == line.agent.side for row in replied)
        if (to := session.handed_to) is not None:
            first.line.agent, first.line.models, first.line.steps = to.agent, to.models, 0
            first.line.activated = True  # unless the run continues with the handoff itself
            first.sides, first.handed_over = to.sides, True
        if session.cancel_requested:  # a cancel that was accepted by now stops the session before anything more runs
            first.line.pending = None
    return SessionState(
        line=first.line,
        waiting_line=first.waiting_line,
        turns=first.turns,
        sides=first.sides,
        handed_over=first.handed_over,
        chosen=start.attempts and any(row["answers"] for row in sides),
        step=session.step if session.head else 0,
        version=session.version,
        usage=session.usage,
        inbox=waiting,
        seen_messages=seen,
        waking=[row["id"] for row in reversed(children) if row["live"] and row["wakes"]],
        ended=[row["id"] for row in reversed(children) if not row["live"]],
        children=[
            StartedChild(id=row["id"], title=preview(row["title"], 80)) for row in reversed(children[:NAMED_CHILDREN])
        ],
        children_started=len(children),
        plan_approved=bool(approved),
        acceptance_round=rounds or 0,
        limits=session.limits if session.limits.raised else None,
    )


def place(state: SessionState, point: ResumePoint, sides: list[SideName]) -> None:
    """Advance a first state to a later head; `sides` are the sides that replied, in order."""
    if state.waiting_line is not None and sides and sides[-1] != state.line.agent.side:
        state.line, state.waiting_line = state.waiting_line, state.line
    for line in filter(None, (state.line, state.waiting_line)):
        line.steps = sides.count(line.agent.side)
    state.turns = sum(one != other for one, other in pairwise(sides))
    state.line.head, state.line.step, state.line.pending = point.head, point.step, point.pending


async def resume_point(pool: Pool, ref: SessionRef, line: str) -> ResumePoint | None:
    """The position of an inline delegate's line; None if it has committed nothing."""
    async with pool.acquire() as connection:
        sql = "SELECT id FROM messages WHERE tenant = $1 AND session_id = $2 AND line = $3 ORDER BY id DESC LIMIT 1"
        head = await connection.fetchval(sql, ref.tenant, ref.session_id, line)
        return await _point(connection, ref.tenant, ref.session_id, head) if head else None


async def _point(connection: Connection, tenant: str, session_id: str, head: str) -> ResumePoint:
    sql = """SELECT m.session_id, m.kind, m.step, m.reply,
                    EXISTS (SELECT 1 FROM messages o WHERE o.tenant = m.tenant AND o.session_id = m.session_id
                               AND o.line = m.line AND o.step = m.step AND o.kind = m.kind AND o.id < m.id) AS closing
               FROM messages m WHERE m.tenant = $1 AND m.id = $2"""
    row = await connection.fetchrow(sql, tenant, head)
    assert row is not None
    return ResumePoint(head=head, step=row["step"], pending=_pending(row, session_id))


def _pending(row: "asyncpg.Record | Mapping[str, Any]", session_id: str) -> ModelReply | None:
    """The reply whose tool calls may not have run. A second reply in a step is a final summary and closes the step."""
    if row["session_id"] != session_id or row["kind"] != ASSISTANT or row["reply"] is None or row["closing"]:
        return None
    reply = ModelReply.model_validate(json.loads(row["reply"]))
    return None if reply.interrupted else reply
