"""What a task adds to the definition of its agent; model calls get it with their other facts."""

from domain.sessions.session import SessionRef
from domain.sessions.task_terms import TaskTerms
from store.database import Pool


async def get(pool: Pool, ref: SessionRef) -> TaskTerms | None:
    statement = "SELECT task_terms FROM sessions WHERE tenant = $1 AND id = $2"
    found = await pool.fetchval(statement, ref.tenant, ref.session_id)
    return TaskTerms.model_validate_json(found) if found else None
