"""Resets: a conversation keeps its id and its history, and its next session begins with an empty context."""

from datetime import datetime

from pydantic import BaseModel

from domain.events import ContextLost, EventRow
from domain.notifications import ConversationUpdated, NewNotice
from domain.sessions.session import RecordedStop, SessionRef
from domain.task import text_of_parts
from store import audit, channels, notices, sessions
from store.database import Connection, Pool, fetch_all, to_json


class DroppedMessage(BaseModel):
    """A waiting message that will not be answered. Without a session, it waited in the inbox of the running one."""

    session_id: str | None
    message_id: str | None  # the service's own id
    text: str


class Reset(BaseModel):
    generation: int
    at: datetime
    dropped: list[DroppedMessage]
    sessions: list[str]  # sessions of the main thread to stop, running or queued


class ResetMarker(BaseModel):
    generation: int
    at: datetime
    by: str


async def reset(pool: Pool, tenant: str, conversation_id: str, stop: RecordedStop) -> Reset | None:
    """Begin the next generation; None if the conversation does not accept anything. Queued and running sessions now
    belong to the old generation: they add nothing to the new context and send no answer. Their stop is recorded here,
    so that none of them continues though nobody signals it."""
    by = stop.actor or stop.by
    async with pool.acquire() as connection, connection.transaction():
        await _lock_unfinished(connection, tenant, conversation_id)
        marked = await _mark(connection, tenant, conversation_id, by)
        if marked is None:
            return None
        generation, at = marked
        sql = """SELECT id AS session_id, live, (task.channel).message_id,
                        coalesce(task.input #>> '{}', title) AS text
                   FROM sessions, LATERAL jsonb_populate_record(NULL::submitted_task, spec::jsonb) task
                  WHERE tenant = $1 AND thread_id = $2 AND status IN ('submitted', 'working', 'input_required')
                  ORDER BY id"""
        waiting = await connection.fetch(sql, tenant, conversation_id)
        sql = """DELETE FROM inbox WHERE tenant = $1 AND thread_id = $2 AND taken_by IS NULL AND source IS NULL
                 RETURNING parts, number"""
        unread = await connection.fetch(sql, tenant, conversation_id)
        dropped: list[DroppedMessage] = []
        for row in waiting:
            if not row["live"]:
                joined = await channels.find_joined(connection, tenant, row["session_id"])
                dropped += [DroppedMessage(**row), *(DroppedMessage(**{**row, **one}) for one in joined)]
        ids = [row["session_id"] for row in waiting]
        stopped = await sessions.record_stops(connection, tenant, conversation_id, ids, stop)
        await _announce(connection, tenant, conversation_id, by)
        for ref in stopped:
            await sessions.audit_stop(connection, ref, stop)
    for row in sorted(unread, key=lambda one: int(one["number"])):
        text = text_of_parts(row["parts"])
        dropped.append(DroppedMessage(session_id=None, message_id=None, text=text))
    return Reset(generation=generation, at=at, dropped=dropped, sessions=ids)


async def begin_anew(pool: Pool, ref: SessionRef, head: str) -> None:
    """Record that the messages before `head` cannot be read. The session continues without them as the first of the
    next generation, together with what is queued behind it. People are notified once."""
    lost = ContextLost(head=head)
    async with pool.acquire() as connection, connection.transaction():
        sql = "SELECT thread_id FROM sessions WHERE tenant = $1 AND id = $2"
        thread_id = await connection.fetchval(sql, ref.tenant, ref.session_id)
        await _lock_unfinished(connection, ref.tenant, thread_id, ref.session_id)
        sql = """SELECT 1 FROM events WHERE tenant = $1 AND session_id = $2 AND type = $3
                    AND data::jsonb ->> 'head' = $4"""
        known = await connection.fetchval(sql, ref.tenant, ref.session_id, lost.type, head)
        if known is not None:
            return
        marked = None
        if thread_id == ref.conversation_id:
            marked = await _mark(connection, ref.tenant, ref.conversation_id, "errand")
        if marked is not None:
            sql = """UPDATE sessions SET generation = $3
                      WHERE tenant = $1 AND thread_id = $2 AND status IN ('submitted', 'working', 'input_required')"""
            await connection.execute(sql, ref.tenant, thread_id, marked[0])
        await connection.execute("SELECT append_events('', false, $1::jsonb)", to_json([EventRow.of(ref, lost)]))
        if marked is not None:
            await _announce(connection, ref.tenant, ref.conversation_id, "errand")


async def markers(pool: Pool, tenant: str, conversation_id: str) -> list[ResetMarker]:
    """The resets of a conversation, oldest first."""
    sql = "SELECT generation, at, by FROM resets WHERE tenant = $1 AND conversation_id = $2 ORDER BY generation"
    return await fetch_all(pool, ResetMarker, sql, tenant, conversation_id)


async def _lock_unfinished(connection: Connection, tenant: str, thread_id: str, also: str | None = None) -> None:
    """Lock all sessions that may change, before the conversation: a session that ends locks the two in this order."""
    sql = """SELECT 1 FROM sessions
              WHERE tenant = $1 AND thread_id = $2
                AND (id = $3 OR status IN ('submitted', 'working', 'input_required')) ORDER BY id FOR UPDATE"""
    await connection.execute(sql, tenant, thread_id, also)


async def _mark(connection: Connection, tenant: str, conversation_id: str, by: str) -> tuple[int, datetime] | None:
    """Begin the next generation; returns its number and its time. None if the conversation does not accept anything."""
    sql = """UPDATE conversations SET generation = generation + 1, updated_at = now()
              WHERE tenant = $1 AND id = $2 AND status = 'open' RETURNING generation"""
    generation = await connection.fetchval(sql, tenant, conversation_id)
    if generation is None:
        return None
    sql = "INSERT INTO resets (tenant, conversation_id, generation, by) VALUES ($1, $2, $3, $4) RETURNING at"
    at = await connection.fetchval(sql, tenant, conversation_id, generation, by)
    return generation, at


async def _announce(connection: Connection, tenant: str, conversation_id: str, by: str) -> None:
    """Last in its transaction: the counters of the events are locked first, then the tenant's, then the audit chain."""
    await notices.give(connection, NewNotice.of(tenant, conversation_id, ConversationUpdated(changed=["reset"])))
    await audit.append(connection, tenant, conversation_id, by, "reset")
