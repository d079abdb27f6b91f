"""Accept sessions: row, input and first events in one transaction, for one session or for many."""

import json
from collections.abc import Sequence
from functools import cached_property

from pydantic import BaseModel, Field

from domain.agents.definition import AgentDefinition
from domain.json_object import JsonObject
from domain.messages import Node
from domain.sessions.session import AgentRef
from domain.sessions.writes import Acceptance, SessionEnding
from domain.wire import SessionRefusal
from store import agents, endings, queued_files
from store.database import Connection, Pool, call
from store.sessions import SessionRow, from_columns, to_columns
from store.workspaces import Manifest


class Waiting(BaseModel):
    """The tasks that no worker has begun."""

    total: int
    own: int  # of the tenant that asks
    tenants: int  # that have any


class EarlierResponse(BaseModel):
    status: int
    response: str


class Accepted(BaseModel):
    """The session as it was written, or exactly one reason for a refusal."""

    columns: JsonObject | None = Field(default=None, alias="session")
    replay: EarlierResponse | None = None  # the request was answered before, under the same idempotency key
    reused: bool = False  # the key came with another request before
    quota: int | None = None  # the number of live tasks
    busy: str | None = None  # the thread's live session
    terminated: bool = False
    unknown: bool = False  # no such conversation
    mail_taken: bool = False  # another session claimed some of the mail
    read_by: str | None = None  # the session that reads the message already
    cancelled: bool = False  # a tree above it was cancelled
    budget: str | None = None  # the kind of the tree's budget that is spent

    @cached_property
    def session(self) -> SessionRow | None:
        """The row, which is parsed when it is used: for most tasks that is after the response."""
        return from_columns(self.columns) if self.columns is not None else None

    @property
    def refused(self) -> SessionRefusal | None:
        """Why no session was opened in a conversation that is not busy."""
        reasons = {
            SessionRefusal.TERMINATED: self.terminated,
            SessionRefusal.QUOTA: self.quota is not None,
            SessionRefusal.BUDGET_SPENT: self.budget is not None,
            SessionRefusal.CANCELLED: self.cancelled,
            SessionRefusal.UNKNOWN: self.unknown,
            SessionRefusal.MAIL_TAKEN: self.mail_taken,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)


async def count_waiting(pool: Pool, tenant: str) -> Waiting:
    row = await pool.fetchrow("SELECT * FROM count_waiting($1)", tenant)
    assert row is not None
    return Waiting(**dict(row))


async def accept(pool: "Pool | Connection", acceptance: Acceptance) -> Accepted:
    return Accepted.model_validate_json(await call(pool, "accept_session", to_document(acceptance)))


async def accept_all(pool: Pool, acceptances: Sequence[Acceptance]) -> list[Accepted]:
    """Accept several sessions in one transaction, each with its own result."""
    documents = [to_document(acceptance) for acceptance in acceptances]
    return [Accepted.model_validate(answer) for answer in json.loads(await call(pool, "accept_sessions", documents))]


async def accept_with_files(pool: Pool, acceptance: Acceptance, files: Manifest) -> Accepted:
    """Add files to an existing workspace, in the same transaction as the message that names them."""
    async with pool.acquire() as connection, connection.transaction():
        accepted = await accept(connection, acceptance)
        if accepted.session is not None:
            await queued_files.add(connection, accepted.session, files)
        return accepted


async def accept_with_agent(pool: Pool, acceptance: Acceptance, own: tuple[AgentRef, AgentDefinition]) -> Accepted:
    """Accept a task with a definition that only this task uses."""
    async with pool.acquire() as connection, connection.transaction():
        accepted = await accept(connection, acceptance)
        if accepted.session is not None:
            await agents.put_private(connection, *own)
        return accepted


async def accept_ended(pool: Pool, acceptance: Acceptance, ending: SessionEnding) -> Accepted:
    """Accept and end a session in one transaction: a point from which to continue, without running anything."""
    async with pool.acquire() as connection, connection.transaction():
        accepted = await accept(connection, acceptance)
        if accepted.session is not None:
            await endings.finish(connection, ending)
        return accepted


async def accept_rerun(
    pool: Pool, acceptance: Acceptance, nodes: Sequence[Node], own: tuple[AgentRef, AgentDefinition] | None
) -> Accepted:
    """Accept a rerun with the messages it begins with; `own`: a definition that only this rerun uses."""
    async with pool.acquire() as connection, connection.transaction():
        accepted = await accept(connection, acceptance)
        if (session := accepted.session) is None:
            return accepted
        if own is not None:
            await agents.put_private(connection, *own)
        await connection.executemany(
            """INSERT INTO messages (tenant, id, parent, session_id, idem, kind, author, line, step, body)
               VALUES ($1, $2, $3, $4, $2 || '/rerun', $5, $6, $7, $8, $9)""",
            [
                (
                    session.tenant,
                    one.id,
                    one.parent,
                    one.session_id,
                    one.kind,
                    one.author,
                    one.line,
                    one.step,
                    one.body.model_dump_json(),
                )
                for one in nodes
            ],
        )
        return accepted


def to_document(acceptance: Acceptance) -> JsonObject:
    """The document that the SQL function accept_session takes."""
    document = acceptance.model_dump(mode="json", exclude={"session", "manifest"})
    return {
        **document,
        "session": to_columns(acceptance.session),
        "manifest": json.dumps(acceptance.manifest),
    }
