"""Sessions: a row is accepted, and then activities update it."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import asyncpg
from pydantic import Field
from pydantic_core import to_jsonable_python

from domain.conversations.subagents import Successor
from domain.events import CancelRequested, EventRow, ModelRetry
from domain.json_object import JsonObject
from domain.plan import Plan
from domain.sessions.new_session import PlacedSession
from domain.sessions.session import AgentRef, Reason, RecordedStop, Scope, SessionRef, Status, Usage
from domain.sessions.session_state import SessionInput
from domain.sessions.writes import QueuedBegin
from domain.wire import RENEW_AFTER
from store import audit
from store.database import Connection, Pool, call, to_json


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


def from_columns(row: asyncpg.Record | Mapping[str, Any]) -> SessionRow:
    return SessionRow(**{key: json.loads(value) if key in _JSON and value else value for key, value in row.items()})


async def get(pool: "Pool | Connection", tenant: str, session_id: str) -> SessionRow | None:
    row = await pool.fetchrow("SELECT * FROM sessions WHERE tenant = $1 AND id = $2", tenant, session_id)
    return from_columns(row) if row else None


async def by_ids(pool: Pool, tenant: str, session_ids: list[str]) -> dict[str, SessionRow]:
    rows = await pool.fetch("SELECT * FROM sessions WHERE tenant = $1 AND id = ANY($2::text[])", tenant, session_ids)
    return {row["id"]: from_columns(row) for row in rows}


async def begin_queued(pool: "Pool | Connection", begin: QueuedBegin) -> str | None:
    """Let a queued session begin. If it cannot yet, return the id of the live one."""
    busy: str | None = json.loads(await call(pool, "begin_queued", begin)).get("busy")
    return busy


async def first_queued(pool: "Pool | Connection", tenant: str, session_id: str) -> str:
    """The session that is first in the queue in which this one waits, by the number of the message that opens it:
    numbers are given in the order of acceptance. This one, if it does not wait any more."""
    first: str | None = await pool.fetchval(
        """SELECT q.id FROM sessions s
             JOIN sessions q ON q.tenant = s.tenant AND q.thread_id = s.thread_id
              AND NOT q.live AND q.status = 'submitted'
             LEFT JOIN inbox opening ON opening.tenant = q.tenant AND opening.id = q.inbox[1]
            WHERE s.tenant = $1 AND s.id = $2 AND NOT s.live AND s.status = 'submitted'
            ORDER BY opening.number, q.id LIMIT 1""",
        tenant,
        session_id,
    )
    return first or session_id


async def newest_of_thread(pool: Pool, tenant: str, thread_id: str) -> SessionRow | None:
    row = await pool.fetchrow(
        """SELECT * FROM sessions WHERE tenant = $1 AND thread_id = $2 AND status <> 'submitted'
            ORDER BY id DESC LIMIT 1""",
        tenant,
        thread_id,
    )
    return from_columns(row) if row else None


async def live_of_thread(pool: Pool, tenant: str, thread_id: str) -> SessionRow | None:
    row = await pool.fetchrow("SELECT * FROM sessions WHERE tenant = $1 AND thread_id = $2 AND live", tenant, thread_id)
    return from_columns(row) if row else None


async def find(
    pool: Pool,
    tenant: str,
    *,
    statuses: list[str] | None = None,
    agent: str | None = None,
    conversation_id: str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
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
              AND ($6::timestamptz IS NULL OR created_at < $6) AND ($7::text IS NULL OR id < $7)
              AND NOT ($9 AND (spawned_by IS NOT NULL OR rerun IS NOT NULL))
              AND ($10::text IS NULL OR created_by = $10)
              AND ($11::text IS NULL OR strpos(lower(title), lower($11)) > 0)
              AND ($12::text IS NULL OR (starts_with(id, $12) AND id BETWEEN $12 AND $12 || repeat('z', 26)))
            ORDER BY id DESC LIMIT $8""",
        tenant,
        statuses,
        agent,
        conversation_id,
        created_after,
        created_before,
        before_id,
        limit,
        top_level,
        created_by,
        text,
        id_prefix,
        timeout=SEARCH_SECONDS if text else None,
    )
    return [from_columns(row) for row in rows]


async def request_cancel(pool: Pool, ref: SessionRef, stop: RecordedStop) -> bool:
    """Record the first cancel; False if one was recorded or the session has ended. A later one may widen it to the
    tree."""
    async with pool.acquire() as connection, connection.transaction():
        recorded = await record_stops(connection, ref.tenant, ref.conversation_id, [ref.session_id], stop)
        if recorded:
            await audit_stop(connection, ref, stop)
        elif stop.scope is Scope.TREE:
            await connection.execute(
                """UPDATE sessions SET cancel_requested = (cancel_requested::jsonb || '{"scope": "tree"}')::text
                    WHERE tenant = $1 AND id = $2 AND status NOT IN ('completed', 'failed', 'cancelled')""",
                ref.tenant,
                ref.session_id,
            )
        return bool(recorded)


async def record_stops(
    connection: Connection, tenant: str, conversation_id: str, session_ids: list[str], stop: RecordedStop
) -> list[SessionRef]:
    """Record the stop of sessions that have none and have not ended; returns these. The caller adds `audit_stop` for
    each as its last statements."""
    rows = await connection.fetch(
        """UPDATE sessions SET cancel_requested = $3, updated_at = now()
            WHERE tenant = $1 AND id = ANY($2::text[]) AND cancel_requested IS NULL
              AND status NOT IN ('completed', 'failed', 'cancelled') RETURNING id""",
        tenant,
        session_ids,
        stop.model_dump_json(),
    )
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
        await connection.execute(
            """UPDATE sessions SET status_text = $3, progress = $3, updated_at = now()
                WHERE tenant = $1 AND id = $2 AND status NOT IN ('completed', 'failed', 'cancelled')""",
            ref.tenant,
            ref.session_id,
            text,
        )
        await connection.execute("SELECT append_events($1, true, $2::jsonb)", f"status/{key}", to_json(events))
