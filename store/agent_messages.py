"""Recipients of messages between agents: an agent is a thread, named by its id or by the id of any of its sessions."""

from pydantic import BaseModel

from store.database import Pool
from store.sessions import SessionRow

REMINDER = "reminder"  # the author of the message that reminds a background agent of its report


class AgentAddress(BaseModel):
    conversation_id: str
    thread_id: str
    terminated: bool


async def address(pool: Pool, tenant: str, agent_id: str) -> AgentAddress | None:
    row = await pool.fetchrow(
        """SELECT s.conversation_id, s.thread_id, c.status = 'terminated' OR t.terminated_at IS NOT NULL AS terminated
             FROM sessions s JOIN conversations c ON c.tenant = s.tenant AND c.id = s.conversation_id
             JOIN threads t ON t.tenant = s.tenant AND t.id = s.thread_id
            WHERE s.tenant = $1 AND s.id = $2""",
        tenant,
        agent_id,
    )
    return AgentAddress(**row) if row else None


async def has_reported(pool: Pool, session: SessionRow) -> bool:
    """Whether a session's agent has sent a message to the agent that started it since the session began, or whether the
    session itself is its answer to a reminder."""
    found: bool = await pool.fetchval(
        """SELECT EXISTS (SELECT 1 FROM inbox i JOIN sessions p ON p.tenant = i.tenant AND p.id = $4
                           WHERE i.tenant = $1 AND i.conversation_id = $2 AND i.thread_id = p.thread_id
                             AND i.author = $3 AND i.created_at >= $5)
               OR EXISTS (SELECT 1 FROM inbox WHERE tenant = $1 AND taken_by = $6 AND author = $7)""",
        session.tenant,
        session.conversation_id,
        session.thread_id,
        session.spawned_by,
        session.created_at,
        session.id,
        REMINDER,
    )
    return found


async def recent_foreground(pool: Pool, tenant: str, except_for: str) -> AgentAddress | None:
    """The agent of a channel to which people wrote last, preferring a running one. Background agents do not
    count, nor do agents whose connector was removed: nobody would read their answers."""
    row = await pool.fetchrow(
        """SELECT c.id AS conversation_id, c.id AS thread_id, false AS terminated
             FROM channels h JOIN conversations c ON c.tenant = h.tenant AND c.id = h.conversation_id
             JOIN connectors k ON k.tenant = h.tenant AND k.name = h.connector
            WHERE h.tenant = $1 AND h.conversation_id <> $2 AND c.status = 'open'
            ORDER BY EXISTS (SELECT 1 FROM sessions s WHERE s.tenant = $1 AND s.thread_id = c.id AND s.live) DESC,
                     (SELECT max(s.created_at) FROM sessions s
                       WHERE s.tenant = $1 AND s.thread_id = c.id AND s.trigger = 'channel') DESC LIMIT 1""",
        tenant,
        except_for,
    )
    return AgentAddress(**row) if row else None
