"""Threads: their place in a conversation and their end, the subagents of each, and their addresses as agents."""

import json

from errand.models import ChildFields, RegistryEntry
from pydantic import BaseModel

from domain.conversations.subagents import SubagentTerms
from domain.events import ModelRetry
from domain.sessions.session import AgentRef, Status
from store import audit
from store.database import Pool, fetch_all, fetch_one
from store.sessions import SessionRow, from_columns


class ThreadPlace(BaseModel):
    id: str
    conversation_id: str
    parent_thread_id: str | None
    terminated: bool


async def get(pool: Pool, tenant: str, thread_id: str) -> ThreadPlace | None:
    sql = """SELECT id, conversation_id, parent_thread_id, terminated_at IS NOT NULL AS terminated
               FROM threads WHERE tenant = $1 AND id = $2"""
    return await fetch_one(pool, ThreadPlace, sql, tenant, thread_id)


async def newest_session(pool: Pool, tenant: str, thread_id: str) -> SessionRow | None:
    """The newest session, even if it still waits."""
    sql = "SELECT * FROM sessions WHERE tenant = $1 AND thread_id = $2 ORDER BY created_at DESC LIMIT 1"
    return await fetch_one(pool, from_columns, sql, tenant, thread_id)


async def is_terminated(pool: Pool, tenant: str, thread_id: str) -> bool:
    found = await get(pool, tenant, thread_id)
    return found is not None and found.terminated


async def terminate(pool: Pool, tenant: str, thread: ThreadPlace, by: str) -> list[str]:
    """Fence the thread: it and the threads below it accept nothing new. Returns their unfinished sessions, which must
    still be stopped; a repetition returns those that are left."""
    async with pool.acquire() as connection, connection.transaction():
        # Accepting a session locks the conversation too, so a new session is either refused or found below.
        sql = "UPDATE conversations SET updated_at = now() WHERE tenant = $1 AND id = $2"
        await connection.execute(sql, tenant, thread.conversation_id)
        sql = """WITH RECURSIVE below AS (
                     SELECT id, terminated_at FROM threads WHERE tenant = $1 AND id = $2
                     UNION SELECT t.id, t.terminated_at FROM threads t JOIN below b ON t.parent_thread_id = b.id
                            WHERE t.tenant = $1 AND t.conversation_id = $3)
                 UPDATE threads SET terminated_at = coalesce(threads.terminated_at, now()) FROM below
                  WHERE threads.tenant = $1 AND threads.id = below.id
                 RETURNING threads.id, below.terminated_at IS NULL AS changed"""
        rows = await connection.fetch(sql, tenant, thread.id, thread.conversation_id)
        if any(row["changed"] for row in rows):
            await audit.append(connection, tenant, thread.conversation_id, by, "terminate", subject=thread.id)
        sql = """SELECT id FROM sessions WHERE tenant = $1 AND thread_id = ANY ($2::text[])
                    AND status IN ('submitted', 'working', 'input_required') ORDER BY id"""
        unfinished = await connection.fetch(sql, tenant, [row["id"] for row in rows])
    return [row["id"] for row in unfinished]


# Children: the subagents of a thread, as the registry of its conversation lists them.


class Child(ChildFields):
    """A subagent's newest session."""

    thread_id: str
    status: Status
    retry: str | None
    error_type: str | None
    progress: str
    subagent: str | None = None  # JSON: its terms

    @property
    def terms(self) -> SubagentTerms | None:
        return SubagentTerms.model_validate_json(self.subagent) if self.subagent else None


_SELECT = """
SELECT s.id AS session_id, s.thread_id, coalesce(s.subagent_name, s.agent) AS name, s.agent, s.title, s.status, s.live,
       s.retry, s.error_type, s.progress, s.created_at, s.subagent
  FROM sessions s JOIN sessions p ON p.tenant = s.tenant AND p.id = s.spawned_by
"""


async def children_of_thread(pool: Pool, tenant: str, thread_id: str, limit: int = 100) -> list[Child]:
    """One entry per subagent: its newest session."""
    sql = f"""SELECT * FROM (SELECT DISTINCT ON (thread_id) *
                               FROM ({_SELECT} WHERE s.tenant = $1 AND p.thread_id = $2) k
                              ORDER BY thread_id, session_id DESC) newest ORDER BY session_id DESC LIMIT $3"""
    return await fetch_all(pool, Child, sql, tenant, thread_id, limit)


async def children_of_session(pool: Pool, tenant: str, session_id: str, limit: int = 1_000) -> list[Child]:
    """Every session that this one spawned, oldest first."""
    sql = f"{_SELECT} WHERE s.tenant = $1 AND s.spawned_by = $2 ORDER BY s.created_at, s.id LIMIT $3"
    return await fetch_all(pool, Child, sql, tenant, session_id, limit)


async def get_child(pool: Pool, tenant: str, thread_id: str, session_id: str) -> Child | None:
    """A child of this thread, by the id of any of its sessions."""
    return await _newest_child(pool, "p.thread_id = $2 AND s.id = $3", tenant, thread_id, session_id)


async def find_child_by_name(pool: Pool, tenant: str, thread_id: str, name: str) -> Child | None:
    """The newest session of the child with this name in this thread."""
    return await _newest_child(pool, "t.parent_thread_id = $2 AND t.name = $3", tenant, thread_id, name)


async def find_child_by_thread(pool: Pool, tenant: str, parent_thread: str, thread_id: str) -> Child | None:
    """The newest session of a child thread of this thread."""
    return await _newest_child(pool, "p.thread_id = $2 AND s.thread_id = $3", tenant, parent_thread, thread_id)


async def _newest_child(pool: Pool, which: str, *values: str) -> Child | None:
    sql = f"""{_SELECT} JOIN threads t ON t.tenant = s.tenant AND t.id = s.thread_id
               WHERE s.tenant = $1 AND {which} ORDER BY s.created_at DESC LIMIT 1"""
    return await fetch_one(pool, Child, sql, *values)


async def get_registry(pool: Pool, tenant: str, conversation_id: str, thread_id: str) -> list[RegistryEntry]:
    """The children of a thread that the subagent tools of its prompts started, oldest first."""
    found = await pool.fetchval("SELECT child_registry($1, $2, $3)", tenant, conversation_id, thread_id)
    return [RegistryEntry.model_validate(entry) for entry in json.loads(found)]


async def promote_child(pool: Pool, tenant: str, session_id: str) -> None:
    """Stop waiting for a child: its outcome goes to the mailbox, even if the child has ended in between."""
    sql = """WITH freed AS (
                 UPDATE sessions SET blocking = false WHERE tenant = $1 AND id = $2 AND blocking RETURNING *),
             mail AS (
                 UPDATE mailbox SET delivered_to = NULL FROM freed
                  WHERE mailbox.tenant = $1 AND mailbox.source_session_id = freed.id RETURNING mailbox.*)
             INSERT INTO inbox (tenant, id, conversation_id, thread_id, kind, author, parts, source)
             SELECT $1, mail.message_id, mail.conversation_id, mail.thread_id, 'outcome', mail.subagent_name, '[]',
                    freed.id
               FROM mail JOIN freed ON freed.id = mail.source_session_id AND freed.delivery = 'wake'
             ON CONFLICT DO NOTHING"""
    await pool.execute(sql, tenant, session_id)


async def find_descendants(pool: Pool, tenant: str, session_id: str) -> list[str]:
    """The live sessions below a session, at any depth."""
    sql = """WITH RECURSIVE tree AS (
                 SELECT id, live FROM sessions WHERE tenant = $1 AND spawned_by = $2
                 UNION SELECT s.id, s.live FROM sessions s JOIN tree t ON s.tenant = $1 AND s.spawned_by = t.id)
             SELECT id FROM tree WHERE live"""
    return [row["id"] for row in await pool.fetch(sql, tenant, session_id)]


async def find_path_above(pool: Pool, tenant: str, session_id: str) -> list[tuple[int, AgentRef]]:
    """Depth and agent of a session and of its ancestors, up to the root."""
    sql = """WITH RECURSIVE path AS (
                 SELECT depth, agent_owner, agent, agent_version, spawned_by FROM sessions WHERE tenant = $1 AND id = $2
                 UNION ALL
                 SELECT s.depth, s.agent_owner, s.agent, s.agent_version, s.spawned_by
                   FROM sessions s JOIN path p ON s.tenant = $1 AND s.id = p.spawned_by)
             SELECT * FROM path"""
    rows = await pool.fetch(sql, tenant, session_id)
    return [
        (row["depth"], AgentRef(owner=row["agent_owner"], name=row["agent"], version=row["agent_version"]))
        for row in rows
    ]


async def find_signs_of_life(pool: Pool, tenant: str, session_ids: list[str]) -> dict[str, str | None]:
    """Each of the sessions that has begun to answer or has ended, with its error type if it failed."""
    sql = """SELECT id, error_type FROM sessions s WHERE tenant = $1 AND id = ANY($2::text[])
                AND (NOT live OR EXISTS (
                    SELECT 1 FROM events e WHERE e.tenant = s.tenant AND e.session_id = s.id
                       AND (is_delta(e.type) OR e.type IN ('usage_updated', 'model_retry'))))"""
    return {row["id"]: row["error_type"] for row in await pool.fetch(sql, tenant, session_ids)}


def retry_text(retry: str | None) -> str:
    """The status text of a child that waits for a retry: it is running, and this is why it takes longer."""
    if not retry:
        return ""
    known = ModelRetry.model_validate_json(retry)
    return f"retrying (attempt {known.attempt}, next at {known.next_at.isoformat()}): {known.reason}"


# Recipients of messages between agents: an agent is a thread, named by its id or by the id of any of its sessions.


REMINDER = "reminder"  # the author of the message that reminds a background agent of its report


class AgentAddress(BaseModel):
    conversation_id: str
    thread_id: str
    terminated: bool


async def find_address(pool: Pool, tenant: str, agent_id: str) -> AgentAddress | None:
    sql = """SELECT s.conversation_id, s.thread_id, c.status = 'terminated' OR t.terminated_at IS NOT NULL AS terminated
               FROM sessions s JOIN conversations c ON c.tenant = s.tenant AND c.id = s.conversation_id
               JOIN threads t ON t.tenant = s.tenant AND t.id = s.thread_id
              WHERE s.tenant = $1 AND s.id = $2"""
    return await fetch_one(pool, AgentAddress, sql, tenant, agent_id)


async def has_reported(pool: Pool, session: SessionRow) -> bool:
    """Whether a session's agent has sent a message to the agent that started it since the session began, or whether the
    session itself is its answer to a reminder."""
    sql = """SELECT EXISTS (SELECT 1 FROM inbox i JOIN sessions p ON p.tenant = i.tenant AND p.id = $4
                         WHERE i.tenant = $1 AND i.conversation_id = $2 AND i.thread_id = p.thread_id
                           AND i.author = $3 AND i.created_at >= $5)
             OR EXISTS (SELECT 1 FROM inbox WHERE tenant = $1 AND taken_by = $6 AND author = $7)"""
    return bool(
        await pool.fetchval(
            sql,
            session.tenant,
            session.conversation_id,
            session.thread_id,
            session.spawned_by,
            session.created_at,
            session.id,
            REMINDER,
        )
    )


async def find_recent_foreground(pool: Pool, tenant: str, except_for: str) -> AgentAddress | None:
    """The agent of a channel to which people wrote last, preferring a running one. Background agents do not
    count, nor do agents whose connector was removed: nobody would read their answers."""
    sql = """SELECT c.id AS conversation_id, c.id AS thread_id, false AS terminated
               FROM channels h JOIN conversations c ON c.tenant = h.tenant AND c.id = h.conversation_id
               JOIN connectors k ON k.tenant = h.tenant AND k.name = h.connector
              WHERE h.tenant = $1 AND h.conversation_id <> $2 AND c.status = 'open'
              ORDER BY EXISTS (SELECT 1 FROM sessions s WHERE s.tenant = $1 AND s.thread_id = c.id AND s.live) DESC,
                       (SELECT max(s.created_at) FROM sessions s
                         WHERE s.tenant = $1 AND s.thread_id = c.id AND s.trigger = 'channel') DESC LIMIT 1"""
    return await fetch_one(pool, AgentAddress, sql, tenant, except_for)
