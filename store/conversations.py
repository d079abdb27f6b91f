"""Conversations: their rows, the messages that wait for a thread, and the API's view of their threads and turns."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg
from errand.models import ConversationFields, ModelUsage, SessionBranch, Thread, Turn
from pydantic import BaseModel, Json

from domain.conversations.mailbox import ConversationStatus
from domain.json_object import JsonObject
from domain.messages import UserBlock, UserBody
from domain.notifications import ConversationUpdated, NewNotice
from domain.sessions.new_session import TRANSPORT, kind_of
from domain.sessions.session import DeliveryMode
from domain.sessions.writes import ThreadMessage
from domain.task import PARTS, parts_of, text_of_parts
from store import audit, files, notices, workspaces
from store.database import Connection, Pool, fetch_all, fetch_one, to_json
from store.workspaces import Manifest

SIGNALLED_WITHIN = timedelta(seconds=6)  # after this the writer of a message will not signal it any more


class ConversationRow(ConversationFields):
    id: str
    status: ConversationStatus
    delivery: DeliveryMode | None
    generation: int  # of its context; a reset begins the next one
    metadata: Json[JsonObject]


_COLUMNS = "id, title, status, delivery, metadata::text AS metadata, generation, created_at, updated_at"


async def get(pool: Pool, tenant: str, conversation_id: str) -> ConversationRow | None:
    sql = f"SELECT {_COLUMNS} FROM conversations WHERE tenant = $1 AND id = $2"
    return await fetch_one(pool, ConversationRow, sql, tenant, conversation_id)


class Found(ConversationRow):
    """An entry of a list, with the place where the search matched and what waits."""

    match_source: list[str]
    pending_count: int


# where a search looks for one word; a conversation matches if every word occurs somewhere
_PLACES = """
SELECT 'title' AS place FROM conversations t WHERE t.tenant = c.tenant AND t.id = c.id AND t.title ILIKE word
UNION SELECT place FROM sessions s, LATERAL (VALUES ('title', s.title), ('input', s.spec::jsonb ->> 'input'),
                                                    ('output', s.output)) AS v(place, said)
       WHERE s.tenant = c.tenant AND s.conversation_id = c.id AND v.said ILIKE word
"""


async def find(
    pool: Pool,
    tenant: str,
    *,
    search: str | None = None,
    metadata: JsonObject | None = None,
    tag: str | None = None,
    user_id: str | None = None,
    status: ConversationStatus | None = None,
    created_by: str | None = None,
    by_activity: bool = False,
    after: tuple[datetime | None, str] = (None, ""),
    limit: int = 50,
) -> list[Found]:
    """The conversations, newest first; `by_activity`: the one that changed last first.

    Every word of `search` must occur in a title, an input or an answer. `metadata` matches by containment, `tag` on any
    thread, `user_id` on the main one, `created_by` on any session. `after` is where the page before ended: the id of
    its last row, and in the order of activity when that had changed.
    """
    changed, last_id = after
    further = "(updated_at, id) < ($10::timestamptz, $2)" if by_activity else "id < $2 AND $10::timestamptz IS NULL"
    sql = f"""SELECT {_COLUMNS}, (SELECT count(*) FROM held_mail(c.tenant, c.id)) AS pending_count,
                     ARRAY(SELECT DISTINCT p.place FROM unnest($4::text[]) AS word, LATERAL ({_PLACES}) p
                            ORDER BY 1) AS match_source
                FROM conversations c
               WHERE tenant = $1 AND ($2::text IS NULL OR {further}) AND metadata @> $3::jsonb
                 AND NOT EXISTS (SELECT 1 FROM unnest($4::text[]) AS word WHERE NOT EXISTS ({_PLACES}))
                 AND ($6::text IS NULL OR EXISTS (SELECT 1 FROM threads t WHERE t.tenant = c.tenant
                                                     AND t.conversation_id = c.id AND t.tags @> ARRAY[$6]))
                 AND ($7::text IS NULL OR EXISTS (SELECT 1 FROM threads t WHERE t.tenant = c.tenant
                                                     AND t.id = c.id AND t.user_id = $7))
                 AND ($8::text IS NULL OR status = $8)
                 AND ($9::text IS NULL OR EXISTS (SELECT 1 FROM sessions s WHERE s.tenant = c.tenant
                                                     AND s.conversation_id = c.id AND s.created_by = $9))
               ORDER BY {"updated_at DESC, " if by_activity else ""}id DESC LIMIT $5"""
    return await fetch_all(
        pool,
        Found,
        sql,
        tenant,
        last_id or None,
        json.dumps(metadata or {}),
        [_pattern(word) for word in (search or "").split()],
        limit,
        tag,
        user_id,
        status,
        created_by,
        changed,
    )


def _pattern(word: str) -> str:
    return "%" + re.sub(r"([\\%_])", r"\\\1", word) + "%"


class ConversationUpdate(BaseModel):
    """Change the given fields; a null in the metadata removes its key."""

    title: str | None = None
    delivery: DeliveryMode | None = None
    metadata: JsonObject | None = None


async def change(pool: Pool, tenant: str, conversation_id: str, update: ConversationUpdate) -> ConversationRow | None:
    changes, given = update.metadata or {}, update.model_fields_set
    async with pool.acquire() as connection, connection.transaction():
        row = await connection.fetchrow(
            f"""UPDATE conversations
                   SET metadata = (metadata || $3::jsonb) - $4::text[], updated_at = now(),
                       title = CASE WHEN $5 THEN $6 ELSE title END, delivery = CASE WHEN $7 THEN $8 ELSE delivery END
                 WHERE tenant = $1 AND id = $2 RETURNING {_COLUMNS}""",
            tenant,
            conversation_id,
            json.dumps(changes),
            [key for key, value in changes.items() if value is None],
            "title" in given,
            update.title,
            "delivery" in given,
            update.delivery,
        )
        if row is None:
            return None
        changed = sorted(given - {"metadata"} | ({"metadata"} if changes else set()))
        notice = NewNotice.of(tenant, conversation_id, ConversationUpdated(changed=changed))
        await notices.give(connection, notice)
    return ConversationRow(**row)


async def terminate(pool: Pool, tenant: str, conversation_id: str, by: str = "") -> bool:
    """Fence the conversation: it accepts nothing new from here on."""
    sql = """UPDATE conversations SET status = 'terminated', updated_at = now()
              WHERE tenant = $1 AND id = $2 RETURNING id"""
    change = audit.change(pool, tenant, by, "terminate", sql, conversation_id, chain=conversation_id, subject="")
    return await change is not None


async def find_unclosed(pool: Pool, limit: int = 200) -> list[str]:
    """Conversations of all tenants that were terminated in the last day, whose workflow may not know it."""
    sql = """SELECT id FROM conversations WHERE status = 'terminated' AND has_workflow
                AND updated_at > now() - interval '1 day' ORDER BY updated_at DESC LIMIT $1"""
    return [row["id"] for row in await pool.fetch(sql, limit)]


async def add_message(
    pool: Pool, tenant: str, message: ThreadMessage, files: tuple[str, Manifest] | None = None
) -> None:
    """Store a message before it is delivered, and the files that it names, by workspace."""
    async with pool.acquire() as connection, connection.transaction():
        await add_message_in(connection, tenant, message)
        if files is not None and files[1]:
            workspace_id, manifest = files
            await workspaces.change_in(connection, tenant, workspace_id, lambda known: {**known, **manifest})


async def add_message_in(connection: Connection, tenant: str, message: ThreadMessage) -> bool:
    """Store a message inside a transaction that writes more. An id is written once; False if it existed."""
    done = await connection.execute(
        """INSERT INTO inbox (tenant, id, conversation_id, thread_id, kind, author, parts, taken_by, unsignalled,
                              visible, wake)
           SELECT $1, m.id, m.conversation_id, m.thread_id, m.kind, m.author, $3, m.taken_by, m.unsignalled, m.visible,
                  m.wake
             FROM jsonb_populate_record(NULL::inbox, $2::jsonb) m ON CONFLICT DO NOTHING""",
        tenant,
        to_json(message),
        parts_of(message.text, files=message.files),
    )
    if message.files:  # whichever session reads it: the conversation's first is removed together with it
        used_in = message.taken_by or message.conversation_id
        await files.use_in(connection, tenant, [file.file_id for file in message.files], used_in)
    return done.endswith(" 1")


async def drop_message(pool: Pool, tenant: str, message_id: str, taken_by: str | None = None) -> None:
    """Delete a message that was not signalled. A message that a session has read stays, unless `taken_by` names that
    session: one that never began."""
    sql = "DELETE FROM inbox WHERE tenant = $1 AND id = $2 AND taken_by IS NOT DISTINCT FROM $3"
    await pool.execute(sql, tenant, message_id, taken_by)


async def drop_unsignalled(pool: Pool, tenant: str, message_id: str) -> bool:
    """Delete a message that no conversation knows. False if a session reads it, or if a repetition of the same request
    has delivered it."""
    sql = "DELETE FROM inbox WHERE tenant = $1 AND id = $2 AND taken_by IS NULL AND unsignalled"
    done = await pool.execute(sql, tenant, message_id)
    return done.endswith(" 1")


async def find_unsignalled(pool: Pool, limit: int = 200) -> list[tuple[str, str, str]]:
    """Messages that were never signalled to their conversation, because their writer got no answer or died: tenant,
    conversation, id."""
    sql = """SELECT tenant, conversation_id, id FROM inbox
              WHERE unsignalled AND created_at < now() - $2::interval ORDER BY number LIMIT $1"""
    rows = await pool.fetch(sql, limit, SIGNALLED_WITHIN)
    return [(row["tenant"], row["conversation_id"], row["id"]) for row in rows]


async def mark_signalled(pool: Pool, tenant: str, message_id: str) -> None:
    await pool.execute("UPDATE inbox SET unsignalled = false WHERE tenant = $1 AND id = $2", tenant, message_id)


@dataclass(frozen=True)
class Written:
    by: str | None  # the session whose context it entered


async def get_message_state(pool: Pool, tenant: str, message_id: str) -> Written | None:
    """The state of a message; None if it does not exist."""
    row = await pool.fetchrow("SELECT taken_by FROM inbox WHERE tenant = $1 AND id = $2", tenant, message_id)
    return Written(row["taken_by"]) if row else None


async def has_message(pool: Pool, tenant: str, message_id: str) -> bool:
    return await pool.fetchval("SELECT 1 FROM inbox WHERE tenant = $1 AND id = $2", tenant, message_id) is not None


async def find_untaken(pool: Pool, tenant: str, message_ids: list[str]) -> list[str]:
    """Those of the messages that have not entered any session's context."""
    sql = "SELECT id FROM inbox WHERE tenant = $1 AND id = ANY($2::text[]) AND taken_by IS NULL"
    return [row["id"] for row in await pool.fetch(sql, tenant, message_ids)]


async def messages_taken_by(pool: Pool, tenant: str, session_id: str, limit: int = 1_000) -> list[str]:
    """The newest messages that a session read."""
    sql = "SELECT id FROM inbox WHERE tenant = $1 AND taken_by = $2 ORDER BY number DESC LIMIT $3"
    return [row["id"] for row in await pool.fetch(sql, tenant, session_id, limit)]


async def change_text(pool: Pool, tenant: str, message_id: str, text: str) -> None:
    """Store the text that enters the context instead of a message's, before the files of the message. The message
    itself stays as it was sent."""
    sql = """UPDATE inbox
                SET changed = ($3::jsonb || jsonb_path_query_array(parts::jsonb, '$[*] ? (@.type != "text")'))::text
              WHERE tenant = $1 AND id = $2"""
    await pool.execute(sql, tenant, message_id, parts_of(text))


async def message_parts(pool: Pool, tenant: str, message_ids: Sequence[str]) -> list[list[UserBlock]]:
    """The contents of messages of the inbox, in their order."""
    sql = """SELECT parts FROM unnest($2::text[]) WITH ORDINALITY AS w(id, place)
               JOIN inbox i ON i.tenant = $1 AND i.id = w.id ORDER BY w.place"""
    return [PARTS.validate_json(row["parts"]) for row in await pool.fetch(sql, tenant, list(message_ids))]


async def message_text(pool: Pool, tenant: str, message_id: str) -> str:
    parts = await pool.fetchval("SELECT parts FROM inbox WHERE tenant = $1 AND id = $2", tenant, message_id)
    return text_of_parts(parts)


# Reads for the API's view of a conversation: its threads, the tree of its sessions, its turns and its usage.


_BRANCH = """id AS session_id, thread_id, parent_session_id, spawned_by,
             session_type, subagent_name AS name, sessions.agent, title, status, reason, partial,
             live, blocking, created_at, ended_at,
             (successor.agent).name AS handed_to, task.transport"""
_DOCUMENTS = """jsonb_populate_record(NULL::successor, handed_to::jsonb) successor,
                jsonb_populate_record(NULL::submitted_task, spec::jsonb) task"""


async def find_branches(pool: Pool, tenant: str, conversation_id: str, limit: int) -> list[SessionBranch]:
    """The newest sessions, ordered oldest first. Ids of siblings derive from their calls, so they do not give the
    order."""
    sql = f"""SELECT * FROM (SELECT {_BRANCH} FROM sessions, {_DOCUMENTS} WHERE tenant = $1 AND conversation_id = $2
                              ORDER BY id DESC LIMIT $3) newest ORDER BY created_at, session_id"""
    return await fetch_all(pool, _branch, sql, tenant, conversation_id, limit)


def _branch(**row: Any) -> SessionBranch:
    transport = row["transport"] or TRANSPORT
    kind = kind_of(row["spawned_by"], row["blocking"], transport)
    return SessionBranch(**{**row, "transport": transport, "kind": kind})


async def find_unfinished(pool: Pool, tenant: str, conversation_id: str, *, queued: bool = False) -> list[str]:
    """The running sessions at any depth; with `queued` also those that wait in a queue."""
    sql = """SELECT id FROM sessions WHERE tenant = $1 AND conversation_id = $2
                AND status IN ('submitted', 'working', 'input_required') AND (live OR $3) ORDER BY id"""
    return [row["id"] for row in await pool.fetch(sql, tenant, conversation_id, queued)]


async def find_latest_committed(pool: Pool, tenant: str, thread_id: str) -> str | None:
    """The session from which a continuation of the thread starts."""
    sql = "SELECT id FROM sessions WHERE tenant = $1 AND thread_id = $2 AND committed ORDER BY ended_at DESC LIMIT 1"
    found: str | None = await pool.fetchval(sql, tenant, thread_id)
    return found


async def find_threads(pool: Pool, tenant: str, conversation_id: str, limit: int) -> list[Thread]:
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
    return [Thread(**{**row, "arguments": json.loads(row["arguments"] or "null")}) for row in rows]


async def sum_usage_by_model(pool: Pool, tenant: str, conversation_id: str) -> dict[str, ModelUsage]:
    """The usage of all its sessions. The cost is unknown as soon as the cost of one call is."""
    sql = """SELECT data::jsonb ->> 'model' AS model, sum(c.llm_calls)::bigint AS requests,
                    sum(c.input_tokens)::bigint AS input_tokens, sum(c.output_tokens)::bigint AS output_tokens,
                    sum(c.cache_read_tokens)::bigint AS cache_read_tokens,
                    sum(c.cache_write_tokens)::bigint AS cache_write_tokens,
                    CASE WHEN bool_and(c.cost_usd IS NOT NULL)
                         THEN round(sum(c.cost_usd::numeric), 9)::float8 END AS cost_usd
               FROM events, LATERAL jsonb_populate_record(NULL::usage, data::jsonb -> 'call') c
              WHERE tenant = $1 AND conversation_id = $2 AND type = 'usage_updated' GROUP BY 1 ORDER BY 1"""
    return {row["model"]: ModelUsage(**row) for row in await pool.fetch(sql, tenant, conversation_id)}


async def find_turns(
    pool: Pool, tenant: str, conversation_id: str, after_id: str | None, limit: int, *, newest: bool = False
) -> list[Turn]:
    """The root thread's sessions in order, or the newest first. A session is opened by its task, by the message it was
    opened with, or by the messages of its first step: outcomes that woke it are rendered only then. Ids do not give the
    order: the id of a woken session derives from its cause, which may be old."""
    comes_after, direction = ("<", "DESC") if newest else (">", "ASC")
    sql = f"""SELECT s.id AS session_id, s.parent_session_id, s.generation, s.trigger, s.agent,
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
              ORDER BY s.created_at {direction}, s.id {direction} LIMIT $4"""
    return [_turn(row) for row in await pool.fetch(sql, tenant, conversation_id, after_id, limit)]


def _turn(row: asyncpg.Record) -> Turn:
    asked, parts, bodies = row["asked"], row["parts"], row["first_messages"]
    opened = [UserBody.model_validate_json(body).text for body in bodies] if bodies else [text_of_parts(parts)]
    text = "\n\n".join(opened)
    given = json.loads(asked) if asked else text or None
    known = {name: row[name] for name in row.keys() & Turn.model_fields.keys()}
    return Turn(**known, input=given if row["visible"] is not False else None)
