"""Values of variables: of the deployment and a tenant, of a thread, and those that subagents wait for."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TypeVar

from pydantic import BaseModel, Json

from domain.agents.variables import (
    Graph,
    drop_shared,
    find_missing,
    graph_variables,
    name_shared,
    pass_on_values,
    seal_secrets,
)
from domain.audit import TENANT
from domain.conversations.requests import SpawnRequest
from domain.conversations.subagents import Successor
from domain.conversations.variable_request import VariableRequest, VariableRequestStatus
from domain.errors import Conflict, Invalid
from domain.redaction import is_sealed
from domain.sealing import KeyRing
from domain.sessions.new_session import NewSession
from domain.sessions.session import AgentRef, SessionRef
from store import agents, audit
from store.database import Connection, Pool, fetch_all, fetch_one, keep_readable, read_row
from store.threads import ThreadPlace

Session = TypeVar("Session", bound=NewSession)


class SharedVariables:
    def __init__(self, keys: KeyRing, deployment: Mapping[str, str]) -> None:
        self._keys = keys
        self._deployment = deployment

    async def of_graph(self, pool: Pool, tenant: str, graph: Graph) -> dict[str, str]:
        """The values for the variables of these agents, as a thread stores them. A tenant's secret is a secret to every
        agent; of the other values those are secrets that an agent declares so. Short ones are included, although
        redaction does not find them: a value that was set as a text, or for all tenants, must not block such an agent's
        tasks."""
        known = graph_variables(graph)
        tenants = await values_of_tenant(pool, tenant) if known else {}
        return self._seal_shared(tenant, graph, tenants)

    async def renew(self, pool: Pool, tenant: str, session: Session) -> Session:
        """A session that was planned earlier, with the present values. Refused if it lacks one and may not ask."""
        own = drop_shared(session.variables)
        tenants = await values_of_tenant(pool, tenant)
        if not tenants and not self._deployment and own == session.variables:
            return session
        definition = await agents.load(pool, session.agent_ref)
        graph = await agents.find_reachable(pool, tenant, definition)
        values = {**own, **self._seal_shared(tenant, graph, tenants)}
        missing = await asyncio.to_thread(find_missing, definition, values, graph)  # takes long for a large graph
        if missing and not session.may_ask:
            raise Invalid(f"The agent lacks values for {', '.join(missing)}.", type="missing-variables")
        return session.model_copy(update={"variables": values, "missing": missing})

    def _seal_shared(self, tenant: str, graph: Graph, tenants: dict[str, str]) -> dict[str, str]:
        known = graph_variables(graph)
        texts = {name: value for name, value in tenants.items() if name in known and not is_sealed(value)}
        secrets = {name: value for name, value in tenants.items() if name in known and is_sealed(value)}
        deployments = {name: value for name, value in self._deployment.items() if name in known}
        seal = partial(seal_secrets, self._keys, tenant, variables=known, shortest=0)
        return name_shared({**secrets, **seal(texts)}, seal(deployments))


# Values of variables that a tenant sets for all its threads. Secrets are encrypted like those of a thread.


MOST = 200  # of a tenant


class TenantVariable(BaseModel):
    name: str
    value: str  # as it is stored
    updated_by: str
    updated_at: datetime


async def list_of_tenant(pool: Pool, tenant: str) -> list[TenantVariable]:
    sql = "SELECT name, value, updated_by, updated_at FROM tenant_variables WHERE tenant = $1 ORDER BY name"
    return await fetch_all(pool, TenantVariable, sql, tenant)


async def values_of_tenant(pool: Pool, tenant: str) -> dict[str, str]:
    return {one.name: one.value for one in await list_of_tenant(pool, tenant)}


async def put_for_tenant(pool: Pool, tenant: str, given: Mapping[str, str], by: str) -> None:
    """Set these values; the others stay."""
    async with pool.acquire() as connection, connection.transaction():
        # One request at a time, so that two concurrent ones cannot exceed the limit.
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 4))", f"variables/{tenant}")
        sql = """INSERT INTO tenant_variables (tenant, name, value, updated_by)
                 SELECT $1, name, value, $4 FROM unnest($2::text[], $3::text[]) AS given(name, value)
                 ON CONFLICT (tenant, name) DO UPDATE
                 SET value = excluded.value, updated_by = excluded.updated_by, updated_at = now()"""
        await connection.execute(sql, tenant, list(given), list(given.values()), by)
        found = await connection.fetchval("SELECT count(*) FROM tenant_variables WHERE tenant = $1", tenant)
        if found > MOST:
            raise Conflict(f"There may be at most {MOST} variables of all threads.")
        subject = ", ".join(sorted(given))
        await audit.append(connection, tenant, TENANT, by, "set_tenant_variables", subject=subject[:500])


async def remove_for_tenant(pool: Pool, tenant: str, name: str, by: str) -> bool:
    sql = "DELETE FROM tenant_variables WHERE tenant = $1 AND name = $2 RETURNING name"
    return await audit.change(pool, tenant, by, "remove_tenant_variable", sql, name) is not None


# Values that are set for a thread during its life: stored with the thread, and passed on to the threads below it.
#
# A session's row holds all values that it uses. So a change is written to the rows of the thread and of the threads
# below it. A child that was planned before the change but opened after it takes its parent's values over once more.


class _Thread(BaseModel):
    """A thread that was not terminated, with its newest session."""

    id: str
    parent_thread_id: str | None
    own: Json[dict[str, str]]  # set for this thread itself
    session_id: str
    agent_owner: str
    agent: str
    agent_version: int
    handed_to: Json[Successor] | None
    values: Json[dict[str, str]]

    @property
    def agent_ref(self) -> AgentRef:
        if self.handed_to is not None:
            return self.handed_to.agent
        return AgentRef(owner=self.agent_owner, name=self.agent, version=self.agent_version)


async def values_of_thread(pool: Pool, tenant: str, thread_id: str) -> dict[str, str]:
    """The values that were set for this thread itself."""
    stored = await pool.fetchval("SELECT variables FROM threads WHERE tenant = $1 AND id = $2", tenant, thread_id)
    found: dict[str, str] = json.loads(stored or "{}")
    return found


async def set_for_thread(pool: Pool, tenant: str, thread: ThreadPlace, values: Mapping[str, str], by: str) -> None:
    """Set values, as they are stored, for a thread and for the active threads below it that inherit them."""
    async with pool.acquire() as connection, connection.transaction():
        # Accepting a session locks the conversation too, so a new child is either found below or sees this mark.
        sql = "UPDATE conversations SET variables_set = true, updated_at = now() WHERE tenant = $1 AND id = $2"
        await connection.execute(sql, tenant, thread.conversation_id)
        sql = """UPDATE threads SET variables = (coalesce(variables, '{}')::jsonb || $3::jsonb)::text
                  WHERE tenant = $1 AND id = $2"""
        await connection.execute(sql, tenant, thread.id, json.dumps(dict(values)))
        subject = f"{thread.id}: {', '.join(sorted(values))}"
        await audit.append(connection, tenant, thread.conversation_id, by, "set_variables", subject=subject[:500])
    async with pool.acquire() as connection, connection.transaction():
        known = await _lock_threads(connection, tenant, thread.conversation_id)
        if (first := known.get(thread.id)) is not None:
            # Use the stored values: another request may have set the same name since.
            await _pass_on(connection, tenant, known, first, {name: first.own[name] for name in values})


async def set_for_session(pool: Pool, ref: SessionRef, values: dict[str, str]) -> None:
    """Store values that a session asked for. From here on nothing is missing, even if some were not given."""
    sql = """UPDATE sessions SET variables = (variables::jsonb || $3::jsonb)::text, missing = '{}', updated_at = now()
              WHERE tenant = $1 AND id = $2"""
    await pool.execute(sql, ref.tenant, ref.session_id, json.dumps(values))


async def renew_threads(pool: Pool, tenant: str, conversation_id: str, thread_ids: Iterable[str]) -> None:
    """Let threads that were just opened take over the values that were set above them in between."""
    sql = "SELECT variables_set FROM conversations WHERE tenant = $1 AND id = $2"
    found = await pool.fetchval(sql, tenant, conversation_id)
    if not found:
        return
    async with pool.acquire() as connection, connection.transaction():
        known = await _lock_threads(connection, tenant, conversation_id)
        for thread in (known[one] for one in thread_ids if one in known):
            names = _set_above(known, thread)
            parent = known.get(thread.parent_thread_id or "")
            if parent is not None and names:
                values = {name: value for name, value in parent.values.items() if name in names}
                passed = await _find_passed(connection, parent, thread, values)
                await _write(connection, tenant, thread, passed)


async def _lock_threads(connection: Connection, tenant: str, conversation_id: str) -> dict[str, _Thread]:
    """The threads of a conversation, locked so that only one transaction passes values on in it."""
    sql = "SELECT pg_advisory_xact_lock(hashtextextended($1, 3))"
    await connection.execute(sql, f"variables/{tenant}/{conversation_id}")
    sql = """SELECT t.id, t.parent_thread_id, coalesce(t.variables, '{}') AS own, s.id AS session_id,
                    s.agent_owner, s.agent, s.agent_version, s.handed_to, s.variables AS values
               FROM threads t
               JOIN LATERAL (SELECT * FROM sessions WHERE tenant = t.tenant AND thread_id = t.id
                              ORDER BY created_at DESC LIMIT 1) s ON true
              WHERE t.tenant = $1 AND t.conversation_id = $2 AND t.terminated_at IS NULL"""
    return {row["id"]: _Thread(**row) for row in await connection.fetch(sql, tenant, conversation_id)}


async def _pass_on(
    connection: Connection, tenant: str, known: dict[str, _Thread], thread: _Thread, values: dict[str, str]
) -> None:
    """Write the values of a thread and of those below that inherit them, the deepest first: opening a session below
    locks the rows in the same order."""
    for child in (one for one in known.values() if one.parent_thread_id == thread.id):
        if passed := await _find_passed(connection, thread, child, values):
            await _pass_on(connection, tenant, known, child, passed)
    await _write(connection, tenant, thread, values)


async def _find_passed(
    connection: Connection, parent: _Thread, child: _Thread, values: dict[str, str]
) -> dict[str, str]:
    try:
        above, below = await agents.load(connection, parent.agent_ref), await agents.load(connection, child.agent_ref)
    except agents.UnreadableAgent:
        return {}  # no session of it runs, and the other threads must have theirs
    found = pass_on_values(values, above, below)
    return {name: value for name, value in found.items() if name not in child.own}


async def _write(connection: Connection, tenant: str, thread: _Thread, values: dict[str, str]) -> None:
    """Write the values to a thread's running and waiting sessions and to its latest one, from which a later session
    inherits them."""
    sql = """UPDATE sessions SET variables = (variables::jsonb || $4::jsonb)::text
              WHERE tenant = $1 AND thread_id = $2
                AND (id = $3 OR status IN ('submitted', 'working', 'input_required'))"""
    await connection.execute(sql, tenant, thread.id, thread.session_id, json.dumps(values))


def _set_above(known: dict[str, _Thread], thread: _Thread) -> set[str]:
    names: set[str] = set()
    above = known.get(thread.parent_thread_id or "")
    while above is not None:
        names |= above.own.keys()
        above = known.get(above.parent_thread_id or "")
    return names


# Variable requests: calls of subagents open them, people answer them once, and the conversation starts the
# subagent.


_COLUMNS = """id, tenant, conversation_id, thread_id, session_id, agent, name, instance, needs, spawn, status, attempts,
              created_at"""


async def open_request(pool: Pool, request: VariableRequest) -> VariableRequest:
    """Store a request. A repetition finds the first one, and so does a second call for a waiting instance of the same
    name."""
    await pool.execute(
        """INSERT INTO variable_requests
               (tenant, id, conversation_id, thread_id, session_id, agent, name, instance, needs, spawn)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING""",
        request.tenant,
        request.id,
        request.conversation_id,
        request.thread_id,
        request.session_id,
        request.agent,
        request.name,
        request.instance,
        json.dumps([one.model_dump(mode="json") for one in request.needs]),
        request.spawn.model_dump_json(),
    )
    sql = f"""SELECT {_COLUMNS} FROM variable_requests
               WHERE tenant = $1 AND (id = $2 OR
                     ($5 AND instance AND thread_id = $3 AND name = $4 AND status <> 'started'))
               ORDER BY id <> $2 LIMIT 1"""
    row = await pool.fetchrow(sql, request.tenant, request.id, request.thread_id, request.name, request.instance)
    assert row is not None
    return VariableRequest(**row)


async def get_request(pool: Pool, tenant: str, thread_id: str, request_id: str) -> VariableRequest | None:
    sql = f"SELECT {_COLUMNS} FROM variable_requests WHERE tenant = $1 AND thread_id = $2 AND id = $3"
    return await fetch_one(pool, VariableRequest, sql, tenant, thread_id, request_id)


async def find_requests(
    pool: Pool, tenant: str, status: VariableRequestStatus, conversation_id: str | None, after: str | None, limit: int
) -> list[VariableRequest]:
    """The requests after this one, oldest first."""
    sql = f"""SELECT {_COLUMNS} FROM variable_requests
               WHERE tenant = $1 AND status = $2 AND ($3::text IS NULL OR conversation_id = $3) AND id > $4
               ORDER BY id LIMIT $5"""
    return await fetch_all(pool, VariableRequest, sql, tenant, status, conversation_id, after or "", limit)


async def find_waiting_names(pool: Pool, tenant: str, thread_id: str, agent: str) -> list[str]:
    """The instances of an agent that wait to begin on this thread."""
    sql = """SELECT name FROM variable_requests
              WHERE tenant = $1 AND thread_id = $2 AND agent = $3 AND instance AND status <> 'started' ORDER BY id"""
    return [row["name"] for row in await pool.fetch(sql, tenant, thread_id, agent)]


async def answer_request(pool: Pool, request: VariableRequest, spawn: SpawnRequest, by: str) -> VariableRequest | None:
    """Store the values once; None if somebody else has set some."""
    sql = f"""UPDATE variable_requests
                 SET status = 'answered', spawn = $3, attempts = attempts + 1, answered_by = $4, answered_at = now()
               WHERE tenant = $1 AND id = $2 AND status = 'open' RETURNING {_COLUMNS}"""
    values = (request.id, spawn.model_dump_json(), by)
    about = {"chain": request.conversation_id, "session_id": request.session_id, "subject": f"variables {request.id}"}
    return read_row(VariableRequest, await audit.change(pool, request.tenant, by, "answer", sql, *values, **about))


async def settle_request(pool: Pool, request: VariableRequest, *, started: bool) -> None:
    """Record that the conversation started the subagent, or refused to; after a refusal values can be set again."""
    sql = """UPDATE variable_requests SET status = CASE WHEN $4 THEN 'started' ELSE 'open' END
              WHERE tenant = $1 AND id = $2 AND status = 'answered' AND attempts = $3"""
    await pool.execute(sql, request.tenant, request.id, request.attempts, started)


async def find_unstarted(pool: Pool, older_than_s: float, limit: int = 100) -> list[VariableRequest]:
    """Requests of all tenants that were answered a while ago but not started, because the process that took the values
    died."""
    sql = f"""SELECT {_COLUMNS} FROM variable_requests
               WHERE status = 'answered' AND answered_at < now() - make_interval(secs => $1)
               ORDER BY random() LIMIT $2"""
    rows = await pool.fetch(sql, older_than_s, limit)
    return keep_readable(rows, VariableRequest, "request")
