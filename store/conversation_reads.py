"""Reads for the API's view of a conversation: its threads, the tree of its sessions, its turns and its usage."""

import json
from datetime import datetime
from typing import Any, Literal

import asyncpg
from pydantic import BaseModel

from domain.content import text_of_parts
from domain.json_object import JsonObject
from domain.messages import UserBody
from domain.sessions.new_session import TRANSPORT
from domain.sessions.session import DeliveryMode, Reason, Status, Usage
from store.database import Pool


class Branch(BaseModel):
    """A session in the tree."""

    session_id: str
    thread_id: str
    parent_session_id: str | None  # whose history it continues
    spawned_by: str | None  # that started it as a subagent
    session_type: str
    name: str | None
    agent: str
    handed_to: str | None  # the agent that took it over
    title: str
    status: Status
    reason: Reason | None
    partial: bool
    live: bool
    blocking: bool
    delivery: DeliveryMode | None
    transport: str
    created_at: datetime
    ended_at: datetime | None


class ThreadRow(BaseModel):
    thread_id: str
    parent_thread_id: str | None
    name: str
    agent: str
    depth: int
    tags: list[str]
    user_id: str | None
    arguments: JsonObject | None  # with which a subagent was created
    state: Literal["running", "queued", "idle"]
    pending: int  # sessions and messages that wait
    created_at: datetime
    updated_at: datetime


class TurnRow(BaseModel):
    """A message to the agent, and the result."""

    session_id: str
    parent_session_id: str | None
    generation: int
    trigger: str
    agent: str
    status: Status
    reason: Reason | None
    partial: bool
    input: Any
    output: str | None
    error: str | None
    created_at: datetime
    ended_at: datetime | None


_BRANCH = """id AS session_id, thread_id, parent_session_id, spawned_by,
             session_type, subagent_name AS name, sessions.agent, title, status, reason, partial,
             live, blocking, delivery, created_at, ended_at,
             (successor.agent).name AS handed_to, task.transport"""
_DOCUMENTS = """jsonb_populate_record(NULL::successor, handed_to::jsonb) successor,
                jsonb_populate_record(NULL::submitted_task, spec::jsonb) task"""


async def branches(pool: Pool, tenant: str, conversation_id: str, limit: int) -> list[Branch]:
    """The newest sessions, ordered oldest first. Ids of siblings derive from their calls, so they do not give the
    order."""
    rows = await pool.fetch(
        f"""SELECT * FROM (SELECT {_BRANCH} FROM sessions, {_DOCUMENTS} WHERE tenant = $1 AND conversation_id = $2
                            ORDER BY id DESC LIMIT $3) newest ORDER BY created_at, session_id""",
        tenant,
        conversation_id,
        limit,
    )
    return [Branch(**{**row, "transport": row["transport"] or TRANSPORT}) for row in rows]


async def unfinished(pool: Pool, tenant: str, conversation_id: str, *, queued: bool = False) -> list[str]:
    """The running sessions at any depth; with `queued` also those that wait in a queue."""
    rows = await pool.fetch(
        """SELECT id FROM sessions WHERE tenant = $1 AND conversation_id = $2
              AND status IN ('submitted', 'working', 'input_required') AND (live OR $3) ORDER BY id""",
        tenant,
        conversation_id,
        queued,
    )
    return [row["id"] for row in rows]


async def latest_committed(pool: Pool, tenant: str, thread_id: str) -> str | None:
    """The session from which a continuation of the thread starts."""
    found: str | None = await pool.fetchval(
        "SELECT id FROM sessions WHERE tenant = $1 AND thread_id = $2 AND committed ORDER BY ended_at DESC LIMIT 1",
        tenant,
        thread_id,
    )
    return found


async def threads(pool: Pool, tenant: str, conversation_id: str, limit: int) -> list[ThreadRow]:
    rows = await pool.fetch(
        """SELECT t.id AS thread_id, t.parent_thread_id, coalesce(x.name, t.name) AS name, t.agent, t.depth,
                  t.tags, t.user_id, t.arguments,
                  t.created_at, coalesce(x.updated_at, t.created_at) AS updated_at, x.queued + i.unread AS pending,
                  CASE WHEN x.running > 0 THEN 'running' WHEN x.queued + i.unread > 0 THEN 'queued' ELSE 'idle'
                  END AS state
             FROM threads t
             CROSS JOIN LATERAL (
                 SELECT count(*) FILTER (WHERE live) AS running, max(updated_at) AS updated_at,
                        count(*) FILTER (WHERE NOT live AND status = 'submitted') AS queued, max(subagent_name) AS name
                   FROM sessions s WHERE s.tenant = $1 AND s.thread_id = t.id) x
             CROSS JOIN LATERAL (
                 SELECT count(*) AS unread FROM inbox i
                  WHERE i.tenant = $1 AND i.conversation_id = $2 AND i.thread_id = t.id AND i.taken_by IS NULL) i
            WHERE t.tenant = $1 AND t.conversation_id = $2 ORDER BY t.depth, t.id LIMIT $3""",
        tenant,
        conversation_id,
        limit,
    )
    return [ThreadRow(**{**row, "arguments": json.loads(row["arguments"] or "null")}) for row in rows]


async def usage_by_model(pool: Pool, tenant: str, conversation_id: str) -> dict[str, Usage]:
    """The usage of all its sessions. The cost is unknown as soon as the cost of one call is."""
    rows = await pool.fetch(
        """SELECT data::jsonb ->> 'model' AS model, sum(c.llm_calls)::bigint AS llm_calls,
                  sum(c.input_tokens)::bigint AS input_tokens, sum(c.output_tokens)::bigint AS output_tokens,
                  sum(c.cache_read_tokens)::bigint AS cache_read_tokens,
                  sum(c.cache_write_tokens)::bigint AS cache_write_tokens,
                  CASE WHEN bool_and(c.cost_usd IS NOT NULL)
                       THEN round(sum(c.cost_usd::numeric), 9)::float8 END AS cost_usd
             FROM events, LATERAL jsonb_populate_record(NULL::usage, data::jsonb -> 'call') c
            WHERE tenant = $1 AND conversation_id = $2 AND type = 'usage_updated' GROUP BY 1 ORDER BY 1""",
        tenant,
        conversation_id,
    )
    return {row["model"]: Usage(**{key: value for key, value in row.items() if key != "model"}) for row in rows}


async def turns(
    pool: Pool, tenant: str, conversation_id: str, after_id: str | None, limit: int, *, newest: bool = False
) -> list[TurnRow]:
    """The root thread's sessions in order, or the newest first. A session is opened by its task, by the message it was
    opened with, or by the messages of its first step: outcomes that woke it are rendered only then. Ids do not give the
    order: the id of a woken session derives from its cause, which may be old."""
    comes_after, direction = ("<", "DESC") if newest else (">", "ASC")
    rows = await pool.fetch(
        f"""SELECT s.id AS session_id, s.parent_session_id, s.generation, s.trigger, s.agent,
                  s.status, s.reason, s.partial, s.output, s.error, s.created_at, s.ended_at,
                  task.visible,
                  CASE WHEN s.trigger IN ('api', 'fork', 'channel', 'schedule', 'event')
                       THEN task.input::text END AS asked,
                  (SELECT i.parts FROM inbox i
                    WHERE i.tenant = s.tenant AND i.id = s.inbox[array_upper(s.inbox, 1)]) AS parts,
                  CASE WHEN s.trigger = 'async_subagent_result' THEN
                      (SELECT array_agg(m.body ORDER BY m.created_at, m.id) FROM messages m
                        WHERE m.tenant = s.tenant AND m.session_id = s.id AND m.kind = 'user' AND m.step = 1)
                  END AS first_messages
             FROM sessions s, LATERAL jsonb_populate_record(NULL::submitted_task, s.spec::jsonb) task
            WHERE s.tenant = $1 AND s.thread_id = $2
              AND ($3::text IS NULL OR (s.created_at, s.id) {comes_after}
                   (SELECT last.created_at, last.id FROM sessions last WHERE last.tenant = $1 AND last.id = $3))
            ORDER BY s.created_at {direction}, s.id {direction} LIMIT $4""",
        tenant,
        conversation_id,
        after_id,
        limit,
    )
    return [_turn(row) for row in rows]


def _turn(row: asyncpg.Record) -> TurnRow:
    asked, parts, bodies = row["asked"], row["parts"], row["first_messages"]
    opened = [UserBody.model_validate_json(body).text for body in bodies] if bodies else [text_of_parts(parts)]
    text = "\n\n".join(opened)
    given = json.loads(asked) if asked else text or None
    known = {name: row[name] for name in TurnRow.model_fields if name != "input"}
    return TurnRow(**known, input=given if row["visible"] is not False else None)
