"""Sessions: accepted as a row, read, stopped, ended once; and those that the sweep looks after."""

import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import to_jsonable_python

from domain.agents.definition import AgentDefinition
from domain.channels import MAX_DEBOUNCE_MS
from domain.conversations.subagents import Successor
from domain.events import CancelRequested, EventRow, ModelRetry, TaskCancelled
from domain.json_object import JsonObject
from domain.messages import Node
from domain.plan import Plan
from domain.sessions.acceptance import AcceptanceRound
from domain.sessions.new_session import PlacedSession, Trigger
from domain.sessions.session import (
    AgentRef,
    Finished,
    Reason,
    RecordedStop,
    Scope,
    SessionRef,
    Status,
    StopRequest,
    Usage,
)
from domain.sessions.session_state import SessionInput
from domain.sessions.writes import Acceptance, AcceptanceRecord, QueuedBegin, SessionEnding
from domain.wire import RENEW_AFTER, SessionRefusal
from store import agents, audit, workspaces
from store.database import Connection, Pool, call, fetch_one, keep_readable, to_json
from store.workspaces import Manifest


class SessionRow(PlacedSession):
    """One row as it is read. The defaults are the state in which every session begins."""

    created_at: datetime
    live: bool
    generation: int = 0  # of its conversation's context; a reset begins the next one
    inbox: list[str] = Field(default_factory=list)
    status: Status = Status.SUBMITTED
    reason: Reason | None = None
    partial: bool = False
    error_type: str | None = None
    error: str | None = None
    output: str | None = None
    typed: bool = False  # its output is JSON that fits its agent's output schema
    head: str | None = None
    version: int = 0
    run_id: str | None = None  # the run of its workflow that owns it
    step: int = 0
    progress: str = ""
    status_text: str | None = None  # the status that the session itself published
    plan: Plan | None = None
    retry: ModelRetry | None = None  # set while a model call waits for its next attempt
    usage: Usage = Usage()
    cancel_requested: RecordedStop | None = None
    emitted_once: list[str] = Field(default_factory=list)  # names of events that a session emits only once
    handed_to: Successor | None = None  # the agent that took it over
    committed: bool = False  # ended with at least one answer of the model
    started_at: datetime | None = None
    updated_at: datetime
    ended_at: datetime | None = None
    keep_until: datetime | None = None  # retention of its content; None until it has ended
    content_removed_at: datetime | None = None

    @property
    def queued(self) -> bool:
        return not self.live and not self.status.terminal

    @property
    def current_agent_ref(self) -> AgentRef:
        return self.handed_to.agent if self.handed_to else self.agent_ref

    @property
    def current_agent(self) -> str:
        return self.current_agent_ref.name

    def workflow_input(self) -> SessionInput:
        """The input of the Session workflow. The row alone suffices, so that a restart needs nothing else."""
        return SessionInput(
            ref=self.ref,
            agent=self.agent_ref,
            models=self.models,
            limits=self.limits,
            deadline=self.deadline,
            workspace_id=self.workspace_id,
            inbox=self.inbox,
            head=self.base_head,
            title=self.title,
            trigger=self.trigger,
            sandbox=self.task.config.sandbox,
            await_children=self.await_children,
            approval_required=self.approval_required,
            ask_variables=bool(self.missing),
            tree=self.task.config.has_tree and (self.spawned_by is None or self.trigger == Trigger.ATTEMPT),
            # only the first task of a workspace, because they begin at its commit
            attempts=self.task.config.attempts is not None
            and self.id == self.workspace_id
            and self.trigger not in (Trigger.ATTEMPT, Trigger.RERUN, Trigger.FORK),
            # a dry run has no work to check
            acceptance=bool(self.task.acceptance_criteria or self.task.constraints) and not self.dry_run,
            spawned_by=self.spawned_by,
            sides=self.sides,
            renew_after=RENEW_AFTER,
        )


SEARCH_SECONDS = 2.0

# Listings leave these out: each may be long.
_LONG = {
    "spec": "'{}' AS spec",
    "output": "NULL AS output",
    "external_tools": "'[]' AS external_tools",
    "task_terms": "NULL AS task_terms",
}
_LISTED = ", ".join(_LONG.get(name, name) for name in SessionRow.model_fields)
# columns of type text that hold JSON
_JSON = frozenset(
    {"spec", "limits", "plan", "retry", "usage", "cancel_requested", "rules", "rerun"}
    | {"external_tools", "variables", "missing", "sides", "handed_to", "subagent", "task_terms"}
)
_FIRST_STATE = {
    name: field.get_default(call_default_factory=True)
    for name, field in SessionRow.model_fields.items()
    if not field.is_required()
}


def _columns(fields: Mapping[str, object]) -> JsonObject:
    values = to_jsonable_python(fields)
    return {name: json.dumps(value) if name in _JSON and value is not None else value for name, value in values.items()}


_FIRST_COLUMNS = _columns(_FIRST_STATE)


def to_columns(session: PlacedSession) -> JsonObject:
    """A new row for jsonb_populate_record; the function that inserts it adds `live` and `updated_at`."""
    return {**_FIRST_COLUMNS, **_columns(dict(session))}


def from_columns(**row: Any) -> SessionRow:
    return SessionRow(**{key: json.loads(value) if key in _JSON and value else value for key, value in row.items()})


async def get(pool: "Pool | Connection", tenant: str, session_id: str) -> SessionRow | None:
    sql = "SELECT * FROM sessions WHERE tenant = $1 AND id = $2"
    return await fetch_one(pool, from_columns, sql, tenant, session_id)


async def load(pool: "Pool | Connection", ref: SessionRef) -> SessionRow:
    """A session that exists, as the caller knows: one of its own activities runs."""
    row = await get(pool, ref.tenant, ref.session_id)
    assert row is not None
    return row


async def by_ids(pool: Pool, tenant: str, session_ids: list[str]) -> dict[str, SessionRow]:
    rows = await pool.fetch("SELECT * FROM sessions WHERE tenant = $1 AND id = ANY($2::text[])", tenant, session_ids)
    return {row["id"]: from_columns(**row) for row in rows}


async def begin_queued(pool: "Pool | Connection", begin: QueuedBegin) -> str | None:
    """Let a queued session begin. If it cannot yet, return the id of the live one."""
    busy: str | None = json.loads(await call(pool, "begin_queued", begin)).get("busy")
    return busy


async def first_queued(pool: "Pool | Connection", tenant: str, session_id: str) -> str:
    """The session that is first in the queue in which this one waits, by the number of the message that opens it:
    numbers are given in the order of acceptance. This one, if it does not wait any more."""
    sql = """SELECT q.id FROM sessions s
               JOIN sessions q ON q.tenant = s.tenant AND q.thread_id = s.thread_id
                AND NOT q.live AND q.status = 'submitted'
               LEFT JOIN inbox opening ON opening.tenant = q.tenant AND opening.id = q.inbox[1]
              WHERE s.tenant = $1 AND s.id = $2 AND NOT s.live AND s.status = 'submitted'
              ORDER BY opening.number, q.id LIMIT 1"""
    first: str | None = await pool.fetchval(sql, tenant, session_id)
    return first or session_id


async def newest_of_thread(pool: Pool, tenant: str, thread_id: str) -> SessionRow | None:
    sql = """SELECT * FROM sessions WHERE tenant = $1 AND thread_id = $2 AND status <> 'submitted'
              ORDER BY id DESC LIMIT 1"""
    return await fetch_one(pool, from_columns, sql, tenant, thread_id)


async def live_of_thread(pool: "Pool | Connection", tenant: str, thread_id: str) -> SessionRow | None:
    sql = "SELECT * FROM sessions WHERE tenant = $1 AND thread_id = $2 AND live"
    return await fetch_one(pool, from_columns, sql, tenant, thread_id)


async def find(
    pool: Pool,
    tenant: str,
    *,
    statuses: list[str] | None = None,
    agent: str | None = None,
    conversation_id: str | None = None,
    created_after: datetime | None = None,
    top_level: bool = False,
    created_by: str | None = None,
    text: str | None = None,
    id_prefix: str | None = None,
    before_id: str | None = None,
    limit: int = 50,
) -> list[SessionRow]:
    """The sessions, newest first. Ids sort by time, so the last id of a page is the cursor of the next.

    No index supports the search for a part of a title. A search that finds too little to fill the page reads all titles
    of the tenant, and raises TimeoutError if that takes too long.
    """
    rows = await pool.fetch(
        f"""SELECT {_LISTED} FROM sessions
            WHERE tenant = $1 AND ($2::text[] IS NULL OR status = ANY($2)) AND ($3::text IS NULL OR agent = $3)
              AND ($4::text IS NULL OR conversation_id = $4) AND ($5::timestamptz IS NULL OR created_at >= $5)
              AND ($6::text IS NULL OR id < $6) AND NOT ($8 AND (spawned_by IS NOT NULL OR rerun IS NOT NULL))
              AND ($9::text IS NULL OR created_by = $9)
              AND ($10::text IS NULL OR strpos(lower(title), lower($10)) > 0)
              AND ($11::text IS NULL OR (starts_with(id, $11) AND id BETWEEN $11 AND $11 || repeat('z', 26)))
            ORDER BY id DESC LIMIT $7""",
        tenant,
        statuses,
        agent,
        conversation_id,
        created_after,
        before_id,
        limit,
        top_level,
        created_by,
        text,
        id_prefix,
        timeout=SEARCH_SECONDS if text else None,
    )
    return [from_columns(**row) for row in rows]


async def request_cancel(pool: Pool, ref: SessionRef, stop: RecordedStop) -> bool:
    """Record the first cancel; False if one was recorded or the session has ended. A later one may widen it to the
    tree."""
    async with pool.acquire() as connection, connection.transaction():
        recorded = await record_stops(connection, ref.tenant, ref.conversation_id, [ref.session_id], stop)
        if recorded:
            await audit_stop(connection, ref, stop)
        elif stop.scope is Scope.TREE:
            sql = """UPDATE sessions SET cancel_requested = (cancel_requested::jsonb || '{"scope": "tree"}')::text
                      WHERE tenant = $1 AND id = $2 AND status NOT IN ('completed', 'failed', 'cancelled')"""
            await connection.execute(sql, ref.tenant, ref.session_id)
        return bool(recorded)


async def record_stops(
    connection: Connection, tenant: str, conversation_id: str, session_ids: list[str], stop: RecordedStop
) -> list[SessionRef]:
    """Record the stop of sessions that have none and have not ended; returns these. The caller adds `audit_stop` for
    each as its last statements."""
    sql = """UPDATE sessions SET cancel_requested = $3, updated_at = now()
              WHERE tenant = $1 AND id = ANY($2::text[]) AND cancel_requested IS NULL
                AND status NOT IN ('completed', 'failed', 'cancelled') RETURNING id"""
    rows = await connection.fetch(sql, tenant, session_ids, stop.model_dump_json())
    mode = "graceful" if stop.grace_ms else "hard"
    event = CancelRequested(reason=stop.reason, by=stop.by, note=stop.note, mode=mode)
    refs = [SessionRef(tenant=tenant, session_id=row["id"], conversation_id=conversation_id) for row in rows]
    # one batch, which locks the counters of all in one order
    batch = to_json([EventRow.of(ref, event) for ref in refs])
    await connection.execute("SELECT append_events('', false, $1::jsonb)", batch)
    return refs


async def audit_stop(connection: Connection, ref: SessionRef, stop: RecordedStop) -> None:
    await audit.append(
        connection,
        ref.tenant,
        ref.conversation_id,
        stop.actor or stop.by,
        "stop",
        session_id=ref.session_id,
        subject=stop.reason,
        inputs=stop.model_dump_json(),
    )


async def set_status_text(pool: Pool, ref: SessionRef, text: str, key: str, events: Sequence[EventRow]) -> None:
    """Publish a status with its event. `key` identifies the call: a repetition emits nothing."""
    async with pool.acquire() as connection, connection.transaction():
        sql = """UPDATE sessions SET status_text = $3, progress = $3, updated_at = now()
                  WHERE tenant = $1 AND id = $2 AND status NOT IN ('completed', 'failed', 'cancelled')"""
        await connection.execute(sql, ref.tenant, ref.session_id, text)
        await connection.execute("SELECT append_events($1, true, $2::jsonb)", f"status/{key}", to_json(events))


# Files of messages. They enter the workspace with the session that reads the message; while that session is queued,
# the sessions before it do not see them.


async def add_queued_files(connection: Connection, session: SessionRow, files: Manifest) -> None:
    """Store the files, in the transaction that accepts the message."""
    if session.live:
        await workspaces.change_in(connection, session.tenant, session.workspace_id, lambda known: {**known, **files})
        return
    sql = """INSERT INTO queued_files (tenant, session_id, manifest) VALUES ($1, $2, $3)
             ON CONFLICT (tenant, session_id) DO UPDATE
             SET manifest = (queued_files.manifest::jsonb || excluded.manifest::jsonb)::text"""
    await connection.execute(sql, session.tenant, session.id, json.dumps(files))


async def enter_queued_files(connection: Connection, tenant: str, session_id: str) -> None:
    """Move the files to the workspace once, in the transaction that lets the session begin."""
    sql = """DELETE FROM queued_files q USING sessions s
              WHERE q.tenant = $1 AND q.session_id = $2 AND s.tenant = q.tenant AND s.id = q.session_id AND s.live
             RETURNING q.manifest, s.workspace_id"""
    row = await connection.fetchrow(sql, tenant, session_id)
    if row is not None:
        files: Manifest = json.loads(row["manifest"])
        await workspaces.change_in(connection, tenant, row["workspace_id"], lambda known: {**known, **files})


# Accept sessions: row, input and first events in one transaction, for one session or for many.


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

    session: Annotated[SessionRow, BeforeValidator(lambda row: from_columns(**row))] | None = None
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
    return Waiting(**row)


async def accept(pool: "Pool | Connection", acceptance: Acceptance) -> Accepted:
    return Accepted.model_validate_json(await call(pool, "accept_session", acceptance_document(acceptance)))


async def accept_all(pool: Pool, acceptances: Sequence[Acceptance]) -> list[Accepted]:
    """Accept several sessions in one transaction, in this order, each with its own result."""
    documents = to_json([acceptance_document(acceptance) for acceptance in acceptances])
    rows = await pool.fetch("SELECT accept_session(one) AS answer FROM jsonb_array_elements($1::jsonb) one", documents)
    return [Accepted.model_validate_json(row["answer"]) for row in rows]


async def accept_and(
    pool: Pool, acceptance: Acceptance, also: Callable[[Connection, SessionRow], Awaitable[object]]
) -> Accepted:
    """Accept a session; what `also` writes for it is in the same transaction."""
    async with pool.acquire() as connection, connection.transaction():
        accepted = await accept(connection, acceptance)
        if accepted.session is not None:
            await also(connection, accepted.session)
        return accepted


async def accept_rerun(
    pool: Pool, acceptance: Acceptance, nodes: Sequence[Node], own: tuple[AgentRef, AgentDefinition] | None
) -> Accepted:
    """Accept a rerun with the messages it begins with; `own`: a definition that only this rerun uses."""

    async def also(connection: Connection, session: SessionRow) -> None:
        if own is not None:
            await agents.put_private(connection, *own)
        await connection.executemany(
            """INSERT INTO messages (tenant, id, parent, session_id, idem, kind, author, line, step, body)
               VALUES ($1, $2, $3, $4, $2 || '/rerun', $5, $6, $7, $8, $9)""",
            [
                (session.tenant, one.id, one.parent, one.session_id, one.kind, one.author, one.line, one.step, body)
                for one, body in ((node, node.body.model_dump_json()) for node in nodes)
            ],
        )

    return await accept_and(pool, acceptance, also)


def acceptance_document(acceptance: Acceptance) -> JsonObject:
    """The document that the SQL function accept_session takes."""
    document = acceptance.model_dump(mode="json", exclude={"session", "manifest"})
    return {
        **document,
        "session": to_columns(acceptance.session),
        "manifest": json.dumps(acceptance.manifest),
    }


# Write the one ending of a session, even if the session never began.


class WrittenEnding(Finished):
    """A session as it ended, now or before."""

    output: str | None
    committed: bool
    mail: str | None  # the mailbox message with its outcome for the spawner
    given_back: list[str]  # outcomes that it received but did not commit
    held: bool  # its outcome must not wake its spawner
    has_workflow: bool  # the conversation's workflow has begun; if it begins later, it reads this end from the rows


async def finish_session(pool: "Pool | Connection", ending: SessionEnding) -> WrittenEnding | StopRequest | None:
    """Write the ending once. If a cancel was accepted before, it wins: it is returned and nothing is written. None: the
    session has committed more than the ending has seen, and nothing is written either."""
    answer = json.loads(await call(pool, "finish_session", ending))
    if "cancel_requested" in answer:
        return StopRequest.model_validate_json(answer["cancel_requested"])
    if "moved" in answer:
        return None
    return WrittenEnding.model_validate(answer)


def ending_of_unbegun(session: SessionRow, reason: Reason) -> SessionEnding:
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


async def record_stop(pool: Pool, session: SessionRow, stop: RecordedStop) -> bool:
    """Record a stop, and end a session that waits in a queue. True if its workflow has to be signalled; if this process
    dies before that, the next step or a worker's look finds the stop in the row."""
    await request_cancel(pool, session.ref, stop)
    # The row may be outdated: the session can have begun since it was read. `end_queued` looks again, under a lock.
    return session.live or not await end_queued(pool, ending_of_unbegun(session, stop.reason))


async def end_queued(pool: Pool, ending: SessionEnding) -> bool:
    """End a session that waits in a queue; False if it has begun or ended by now."""
    async with pool.acquire() as connection, connection.transaction():
        sql = """SELECT 1 FROM sessions WHERE tenant = $1 AND id = $2 AND status = 'submitted' AND NOT live
                    FOR UPDATE"""
        waits = await connection.fetchval(sql, ending.ref.tenant, ending.ref.session_id)
        if waits:
            await finish_session(connection, ending)
        return waits is not None


# Verdicts on acceptance criteria: written once for each round of a session, and read with its result.


async def get_acceptance(pool: Pool, tenant: str, session_id: str) -> AcceptanceRound | None:
    text = await pool.fetchval("SELECT acceptance FROM sessions WHERE tenant = $1 AND id = $2", tenant, session_id)
    return AcceptanceRound.model_validate_json(text) if text else None


async def record_acceptance(pool: Pool, record: AcceptanceRecord) -> None:
    """Write a round. A round that was written before stays unchanged."""
    await call(pool, "record_acceptance", record)


# Sessions that should be running, for a sweep to check.


async def find_unsettled(pool: Pool, silent_s: float, starting_s: float, limit: int = 500) -> list[SessionRow]:
    """Sessions of all tenants that are not terminal and have been silent for a while. Those that should begin come
    first, those that wait for people last. The rest are in random order, so that many live ones cannot hide a lost
    one."""
    sql = """SELECT * FROM sessions s WHERE status IN ('submitted', 'working', 'input_required')
                AND updated_at < now() - make_interval(secs => CASE WHEN status <> 'submitted' THEN $1::float8
                        WHEN trigger = 'channel' AND NOT live THEN $2::float8 + $4  -- it may wait for others
                        ELSE $2::float8 END)
              ORDER BY NOT (live AND status = 'submitted'),
                       status = 'input_required' AND cancel_requested IS NULL AND NOT EXISTS (
                           SELECT 1 FROM input_requests r WHERE r.tenant = s.tenant AND r.session_id = s.id
                              AND r.status = 'answered' AND NOT r.settled), random() LIMIT $3"""
    rows = await pool.fetch(sql, silent_s, starting_s, limit, MAX_DEBOUNCE_MS / 1_000)
    return keep_readable(rows, from_columns, "session")


async def find_unstarted(pool: Pool, starting_s: float, limit: int = 10) -> list[SessionRow]:
    """Sessions of callers, of all tenants, that were accepted in the last minute and should have begun. Few, in random
    order: if all workers are busy there are many, and nearly all of them were started."""
    sql = """SELECT * FROM sessions WHERE status = 'submitted' AND live AND spawned_by IS NULL
                AND updated_at BETWEEN now() - interval '1 minute' AND now() - make_interval(secs => $1)
              ORDER BY random() LIMIT $2"""
    rows = await pool.fetch(sql, starting_s, limit)
    return keep_readable(rows, from_columns, "session")


async def find_unheard(pool: Pool, older_than_s: float, limit: int = 20) -> list[tuple[str, str, str]]:
    """Stops and answers that running sessions of all tenants have not acted on: tenant, session, and what it is. In
    random order, so that one that cannot be signalled does not hide the others."""
    sql = """SELECT * FROM (
                 SELECT tenant, id, cancel_requested AS what FROM sessions
                  WHERE cancel_requested IS NOT NULL AND status IN ('submitted', 'working', 'input_required')
                    AND (cancel_requested::jsonb ->> 'at')::timestamptz < now() - make_interval(secs => $1)
                 UNION ALL
                 SELECT s.tenant, s.id, r.id FROM input_requests r
                   JOIN sessions s ON s.tenant = r.tenant AND s.id = r.session_id
                  WHERE r.status = 'answered' AND NOT r.settled AND r.answered_at < now() - make_interval(secs => $1)
                    AND s.status IN ('submitted', 'working', 'input_required')) found
              ORDER BY random() LIMIT $2"""
    return [(row["tenant"], row["id"], row["what"]) for row in await pool.fetch(sql, older_than_s, limit)]


async def find_orphaned(pool: Pool, older_than_s: float, limit: int = 200) -> list[SessionRow]:
    """Sessions of all tenants that still run although the session that waited for them has ended. Their conversation
    stops them, unless it or they could not be reached at that moment."""
    sql = """SELECT s.* FROM sessions s JOIN sessions p ON p.tenant = s.tenant AND p.id = s.spawned_by
              WHERE s.live AND s.blocking AND s.cancel_requested IS NULL
                AND p.ended_at < now() - make_interval(secs => $1) ORDER BY random() LIMIT $2"""
    rows = await pool.fetch(sql, older_than_s, limit)
    return keep_readable(rows, from_columns, "session")


async def find_running(pool: Pool, limit: int = 500) -> list[tuple[str, str]]:
    """The sessions of all tenants that do not wait for people, with their conversations; the latest first."""
    sql = """SELECT id, conversation_id FROM sessions WHERE live AND status IN ('submitted', 'working')
              ORDER BY updated_at DESC LIMIT $1"""
    return [(row["id"], row["conversation_id"]) for row in await pool.fetch(sql, limit)]


# Short ids of sessions, for people to type.


SHORTEST_ID = 8  # characters; they cover one second, so that a later session rarely makes a short id ambiguous


async def find_short_ids(pool: Pool, tenant: str, ids: list[str]) -> dict[str, str]:
    """The shortest prefix of each id that no other session of the tenant has."""
    sql = """SELECT own.id, (SELECT max(s.id) FROM sessions s WHERE s.tenant = $1 AND s.id < own.id) AS before,
                    (SELECT min(s.id) FROM sessions s WHERE s.tenant = $1 AND s.id > own.id) AS after
               FROM unnest($2::text[]) AS own (id)"""
    rows = await pool.fetch(sql, tenant, ids)
    return {row["id"]: _shortest(row["id"], row["before"] or "", row["after"] or "") for row in rows}


def _shortest(own: str, *neighbours: str) -> str:
    shared = max(len(os.path.commonprefix([own, other])) for other in neighbours)
    return own[: max(SHORTEST_ID, shared + 1)]
