"""Threads: their place in a conversation, and their termination."""

from pydantic import BaseModel

from store import audit
from store.database import Pool
from store.sessions import SessionRow, from_columns


class ThreadPlace(BaseModel):
    id: str
    conversation_id: str
    parent_thread_id: str | None
    terminated: bool


async def get(pool: Pool, tenant: str, thread_id: str) -> ThreadPlace | None:
    row = await pool.fetchrow(
        """SELECT id, conversation_id, parent_thread_id, terminated_at IS NOT NULL AS terminated
             FROM threads WHERE tenant = $1 AND id = $2""",
        tenant,
        thread_id,
    )
    return ThreadPlace(**row) if row else None


async def newest_session(pool: Pool, tenant: str, thread_id: str) -> SessionRow | None:
    """The newest session, even if it still waits."""
    row = await pool.fetchrow(
        "SELECT * FROM sessions WHERE tenant = $1 AND thread_id = $2 ORDER BY created_at DESC LIMIT 1",
        tenant,
        thread_id,
    )
    return from_columns(row) if row else None


async def is_terminated(pool: Pool, tenant: str, thread_id: str) -> bool:
    found = await get(pool, tenant, thread_id)
    return found is not None and found.terminated


async def terminate(pool: Pool, tenant: str, thread: ThreadPlace, by: str) -> list[str]:
    """Fence the thread: it and the threads below it accept nothing new. Returns their unfinished sessions, which must
    still be stopped; a repetition returns those that are left."""
    async with pool.acquire() as connection, connection.transaction():
        # Accepting a session locks the conversation too, so a new session is either refused or found below.
        await connection.execute(
            "UPDATE conversations SET updated_at = now() WHERE tenant = $1 AND id = $2", tenant, thread.conversation_id
        )
        rows = await connection.fetch(
            """WITH RECURSIVE below AS (
                   SELECT id, terminated_at FROM threads WHERE tenant = $1 AND id = $2
                   UNION SELECT t.id, t.terminated_at FROM threads t JOIN below b ON t.parent_thread_id = b.id
                          WHERE t.tenant = $1 AND t.conversation_id = $3)
               UPDATE threads SET terminated_at = coalesce(threads.terminated_at, now()) FROM below
                WHERE threads.tenant = $1 AND threads.id = below.id
               RETURNING threads.id, below.terminated_at IS NULL AS changed""",
            tenant,
            thread.id,
            thread.conversation_id,
        )
        if any(row["changed"] for row in rows):
            await audit.append(connection, tenant, thread.conversation_id, by, "terminate", subject=thread.id)
        unfinished = await connection.fetch(
            """SELECT id FROM sessions WHERE tenant = $1 AND thread_id = ANY ($2::text[])
                  AND status IN ('submitted', 'working', 'input_required') ORDER BY id""",
            tenant,
            [row["id"] for row in rows],
        )
    return [row["id"] for row in unfinished]
