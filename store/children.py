"""Children: the subagents of a thread, as the registry of its conversation lists them."""

import json
from datetime import datetime

from pydantic import BaseModel

from domain.conversations.subagents import RegistryEntry, SubagentTerms
from domain.events import ModelRetry
from domain.sessions.session import AgentRef, Status
from store.database import Pool


class Child(BaseModel):
    """A subagent's newest session."""

    session_id: str
    thread_id: str
    name: str
    agent: str
    title: str
    status: Status
    live: bool
    retry: str | None
    error_type: str | None
    progress: str
    created_at: datetime
    subagent: str | None = None  # JSON: its terms

    @property
    def terms(self) -> SubagentTerms | None:
        return SubagentTerms.model_validate_json(self.subagent) if self.subagent else None


_SELECT = """
SELECT s.id AS session_id, s.thread_id, coalesce(s.subagent_name, s.agent) AS name, s.agent, s.title, s.status, s.live,
       s.retry, s.error_type, s.progress, s.created_at, s.subagent
  FROM sessions s JOIN sessions p ON p.tenant = s.tenant AND p.id = s.spawned_by
"""


async def of_thread(pool: Pool, tenant: str, thread_id: str, limit: int = 100) -> list[Child]:
    """One entry per subagent: its newest session."""
    rows = await pool.fetch(
        f"""SELECT * FROM (SELECT DISTINCT ON (thread_id) * FROM ({_SELECT} WHERE s.tenant = $1 AND p.thread_id = $2) k
                            ORDER BY thread_id, session_id DESC) newest ORDER BY session_id DESC LIMIT $3""",
        tenant,
        thread_id,
        limit,
    )
    return [Child(**row) for row in rows]


async def of_session(pool: Pool, tenant: str, session_id: str, limit: int = 1_000) -> list[Child]:
    """Every session that this one spawned, oldest first."""
    rows = await pool.fetch(
        f"{_SELECT} WHERE s.tenant = $1 AND s.spawned_by = $2 ORDER BY s.created_at, s.id LIMIT $3",
        tenant,
        session_id,
        limit,
    )
    return [Child(**row) for row in rows]


async def get(pool: Pool, tenant: str, thread_id: str, session_id: str) -> Child | None:
    """A child of this thread, by the id of any of its sessions."""
    row = await pool.fetchrow(
        f"{_SELECT} WHERE s.tenant = $1 AND p.thread_id = $2 AND s.id = $3", tenant, thread_id, session_id
    )
    return Child(**row) if row else None


async def by_name(pool: Pool, tenant: str, thread_id: str, name: str) -> Child | None:
    """The newest session of the child with this name in this thread."""
    row = await pool.fetchrow(
        f"""{_SELECT} JOIN threads t ON t.tenant = s.tenant AND t.id = s.thread_id
             WHERE s.tenant = $1 AND t.parent_thread_id = $2 AND t.name = $3 ORDER BY s.created_at DESC LIMIT 1""",
        tenant,
        thread_id,
        name,
    )
    return Child(**row) if row else None


async def by_thread(pool: Pool, tenant: str, parent_thread: str, thread_id: str) -> Child | None:
    """The newest session of a child thread of this thread."""
    row = await pool.fetchrow(
        f"""{_SELECT} WHERE s.tenant = $1 AND p.thread_id = $2 AND s.thread_id = $3
             ORDER BY s.created_at DESC LIMIT 1""",
        tenant,
        parent_thread,
        thread_id,
    )
    return Child(**row) if row else None


async def registry(pool: Pool, tenant: str, conversation_id: str, thread_id: str) -> list[RegistryEntry]:
    """The children of a thread that the subagent tools of its prompts started, oldest first."""
    found = await pool.fetchval("SELECT child_registry($1, $2, $3)", tenant, conversation_id, thread_id)
    return [RegistryEntry.model_validate(entry) for entry in json.loads(found)]


async def promote(pool: Pool, tenant: str, session_id: str) -> None:
    """Stop waiting for a child: its outcome goes to the mailbox, even if the child has ended in between."""
    await pool.execute(
        """WITH freed AS (
               UPDATE sessions SET blocking = false WHERE tenant = $1 AND id = $2 AND blocking RETURNING *),
           mail AS (
               UPDATE mailbox SET delivered_to = NULL FROM freed
                WHERE mailbox.tenant = $1 AND mailbox.source_session_id = freed.id RETURNING mailbox.*)
           INSERT INTO inbox (tenant, id, conversation_id, thread_id, kind, author, parts, source)
           SELECT $1, mail.message_id, mail.conversation_id, mail.thread_id, 'outcome', mail.subagent_name, '[]',
                  freed.id
             FROM mail JOIN freed ON freed.id = mail.source_session_id AND freed.delivery = 'wake'
           ON CONFLICT DO NOTHING""",
        tenant,
        session_id,
    )


async def descendants(pool: Pool, tenant: str, session_id: str) -> list[str]:
    """The live sessions below a session, at any depth."""
    rows = await pool.fetch(
        """WITH RECURSIVE tree AS (
               SELECT id, live FROM sessions WHERE tenant = $1 AND spawned_by = $2
               UNION SELECT s.id, s.live FROM sessions s JOIN tree t ON s.tenant = $1 AND s.spawned_by = t.id)
           SELECT id FROM tree WHERE live""",
        tenant,
        session_id,
    )
    return [row["id"] for row in rows]


async def path_above(pool: Pool, tenant: str, session_id: str) -> list[tuple[int, AgentRef]]:
    """Depth and agent of a session and of its ancestors, up to the root."""
    rows = await pool.fetch(
        """WITH RECURSIVE path AS (
               SELECT depth, agent_owner, agent, agent_version, spawned_by FROM sessions WHERE tenant = $1 AND id = $2
               UNION ALL
               SELECT s.depth, s.agent_owner, s.agent, s.agent_version, s.spawned_by
                 FROM sessions s JOIN path p ON s.tenant = $1 AND s.id = p.spawned_by)
           SELECT * FROM path""",
        tenant,
        session_id,
    )
    return [
        (row["depth"], AgentRef(owner=row["agent_owner"], name=row["agent"], version=row["agent_version"]))
        for row in rows
    ]


async def signs_of_life(pool: Pool, tenant: str, session_ids: list[str]) -> dict[str, str | None]:
    """Each of the sessions that has begun to answer or has ended, with its error type if it failed."""
    rows = await pool.fetch(
        """SELECT id, error_type FROM sessions s WHERE tenant = $1 AND id = ANY($2::text[])
              AND (NOT live OR EXISTS (
                  SELECT 1 FROM events e WHERE e.tenant = s.tenant AND e.session_id = s.id
                     AND (is_delta(e.type) OR e.type IN ('usage_updated', 'model_retry'))))""",
        tenant,
        session_ids,
    )
    return {row["id"]: row["error_type"] for row in rows}


def retry_text(retry: str | None) -> str:
    """The status text of a child that waits for a retry: it is running, and this is why it takes longer."""
    if not retry:
        return ""
    known = ModelRetry.model_validate_json(retry)
    return f"retrying (attempt {known.attempt}, next at {known.next_at.isoformat()}): {known.reason}"
