"""Write the one ending of a session, even if the session never began."""

import json

from pydantic import BaseModel, ConfigDict, Json

from domain.events import EventRow, TaskCancelled
from domain.sessions.new_session import TaskTerms
from domain.sessions.session import Reason, SessionRef, Status, StopRequest
from domain.sessions.writes import SessionEnding
from store.database import Connection, Pool, call
from store.sessions import SessionRow


class WrittenEnding(BaseModel):
    """A session as it ended, now or before."""

    model_config = ConfigDict(frozen=True)

    status: Status
    reason: Reason
    partial: bool
    head: str | None
    output: str | None
    committed: bool
    mail: str | None  # the mailbox message with its outcome for the spawner
    given_back: list[str]  # outcomes that it received but did not commit
    held: bool  # its outcome must not wake its spawner
    has_workflow: bool  # the conversation's workflow has begun; if it begins later, it reads this end from the rows


class EndingFacts(BaseModel):
    """What the ending of a session depends on."""

    task_terms: Json[TaskTerms] | None
    head: str | None
    version: int


async def facts(pool: Pool, ref: SessionRef) -> EndingFacts:
    row = await pool.fetchrow(
        "SELECT task_terms, head, version FROM sessions WHERE tenant = $1 AND id = $2", ref.tenant, ref.session_id
    )
    assert row is not None
    return EndingFacts(**dict(row))


async def finish(pool: "Pool | Connection", ending: SessionEnding) -> WrittenEnding | StopRequest | None:
    """Write the ending once. If a cancel was accepted before, it wins: it is returned and nothing is written. None: the
    session has committed more than the ending has seen, and nothing is written either."""
    answer = json.loads(await call(pool, "finish_session", ending))
    if "cancel_requested" in answer:
        return StopRequest.model_validate_json(answer["cancel_requested"])
    if "moved" in answer:
        return None
    return WrittenEnding.model_validate(answer)


def of_unbegun(session: SessionRow, reason: Reason) -> SessionEnding:
    """The ending of a session that never began."""
    ended = TaskCancelled(status=reason.status, reason=reason, partial=False, usage=session.usage)
    return SessionEnding(
        ref=session.ref,
        reason=reason,
        head=session.head,
        step=0,
        version=session.version + 1,
        events=[EventRow.of(session.ref, ended)],
    )


async def end_queued(pool: Pool, ending: SessionEnding) -> bool:
    """End a session that waits in a queue; False if it has begun or ended by now."""
    async with pool.acquire() as connection, connection.transaction():
        waits = await connection.fetchval(
            """SELECT 1 FROM sessions WHERE tenant = $1 AND id = $2 AND status = 'submitted' AND NOT live
                  FOR UPDATE""",
            ending.ref.tenant,
            ending.ref.session_id,
        )
        if waits:
            await finish(connection, ending)
        return waits is not None
