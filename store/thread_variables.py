"""Values that are set for a thread during its life: stored with the thread, and passed on to the threads below it.

A session's row holds all values that it uses. So a change is written to the rows of the thread and of the threads below
it. A child that was planned before the change but opened after it takes its parent's values over once more.
"""

import json
from collections.abc import Iterable, Mapping

from pydantic import BaseModel, Json

from domain.agents.definition import AgentDefinition
from domain.agents.variables import pass_on_values
from domain.conversations.subagents import Successor
from domain.sessions.session import AgentRef, SessionRef
from store import agent_graph, agents, audit
from store.database import Connection, Pool
from store.threads import ThreadPlace


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


async def own(pool: Pool, tenant: str, thread_id: str) -> dict[str, str]:
    """The values that were set for this thread itself."""
    stored = await pool.fetchval("SELECT variables FROM threads WHERE tenant = $1 AND id = $2", tenant, thread_id)
    found: dict[str, str] = json.loads(stored or "{}")
    return found


async def set_values(pool: Pool, tenant: str, thread: ThreadPlace, values: Mapping[str, str], by: str) -> None:
    """Set values, as they are stored, for a thread and for the active threads below it that inherit them."""
    async with pool.acquire() as connection, connection.transaction():
        # Accepting a session locks the conversation too, so a new child is either found below or sees this mark.
        await connection.execute(
            "UPDATE conversations SET variables_set = true, updated_at = now() WHERE tenant = $1 AND id = $2",
            tenant,
            thread.conversation_id,
        )
        await connection.execute(
            """UPDATE threads SET variables = (coalesce(variables, '{}')::jsonb || $3::jsonb)::text
                WHERE tenant = $1 AND id = $2""",
            tenant,
            thread.id,
            json.dumps(dict(values)),
        )
        subject = f"{thread.id}: {', '.join(sorted(values))}"
        await audit.append(connection, tenant, thread.conversation_id, by, "set_variables", subject=subject[:500])
    async with pool.acquire() as connection, connection.transaction():
        known = await _locked(connection, tenant, thread.conversation_id)
        if (first := known.get(thread.id)) is not None:
            # Use the stored values: another request may have set the same name since.
            await _pass_on(connection, tenant, known, first, {name: first.own[name] for name in values})


async def set_asked(pool: Pool, ref: SessionRef, values: dict[str, str]) -> None:
    """Store values that a session asked for. From here on nothing is missing, even if some were not given."""
    await pool.execute(
        """UPDATE sessions SET variables = (variables::jsonb || $3::jsonb)::text, missing = '{}', updated_at = now()
            WHERE tenant = $1 AND id = $2""",
        ref.tenant,
        ref.session_id,
        json.dumps(values),
    )


async def renew(pool: Pool, tenant: str, conversation_id: str, thread_ids: Iterable[str]) -> None:
    """Let threads that were just opened take over the values that were set above them in between."""
    found = await pool.fetchval(
        "SELECT variables_set FROM conversations WHERE tenant = $1 AND id = $2", tenant, conversation_id
    )
    if not found:
        return
    async with pool.acquire() as connection, connection.transaction():
        known = await _locked(connection, tenant, conversation_id)
        for thread in (known[one] for one in thread_ids if one in known):
            names = _set_above(known, thread)
            parent = known.get(thread.parent_thread_id or "")
            if parent is not None and names:
                values = {name: value for name, value in parent.values.items() if name in names}
                passed = await _passed(connection, tenant, parent, thread, values)
                await _write(connection, tenant, thread, passed)


async def _locked(connection: Connection, tenant: str, conversation_id: str) -> dict[str, _Thread]:
    """The threads of a conversation, locked so that only one transaction passes values on in it."""
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 3))", f"variables/{tenant}/{conversation_id}"
    )
    rows = await connection.fetch(
        """SELECT t.id, t.parent_thread_id, coalesce(t.variables, '{}') AS own, s.id AS session_id,
                  s.agent_owner, s.agent, s.agent_version, s.handed_to, s.variables AS values
             FROM threads t
             JOIN LATERAL (SELECT * FROM sessions WHERE tenant = t.tenant AND thread_id = t.id
                            ORDER BY created_at DESC LIMIT 1) s ON true
            WHERE t.tenant = $1 AND t.conversation_id = $2 AND t.terminated_at IS NULL""",
        tenant,
        conversation_id,
    )
    return {row["id"]: _Thread(**row) for row in rows}


async def _pass_on(
    connection: Connection, tenant: str, known: dict[str, _Thread], thread: _Thread, values: dict[str, str]
) -> None:
    """Order the threads deepest first, because opening a session below locks the rows in the same order."""
    for child in (one for one in known.values() if one.parent_thread_id == thread.id):
        if passed := await _passed(connection, tenant, thread, child, values):
            await _pass_on(connection, tenant, known, child, passed)
    await _write(connection, tenant, thread, values)


async def _passed(
    connection: Connection, tenant: str, parent: _Thread, child: _Thread, values: dict[str, str]
) -> dict[str, str]:
    above, definition = await _definition(connection, parent), await _definition(connection, child)
    graph = await agent_graph.reachable(connection, tenant, definition)
    found = pass_on_values(values, above, definition, graph)
    return {name: value for name, value in found.items() if name not in child.own}


async def _definition(connection: Connection, thread: _Thread) -> AgentDefinition:
    return await agents.load(connection, thread.agent_ref)


async def _write(connection: Connection, tenant: str, thread: _Thread, values: dict[str, str]) -> None:
    """Write the values to a thread's running and waiting sessions and to its latest one, from which a later session
    inherits them."""
    await connection.execute(
        """UPDATE sessions SET variables = (variables::jsonb || $4::jsonb)::text
            WHERE tenant = $1 AND thread_id = $2
              AND (id = $3 OR status IN ('submitted', 'working', 'input_required'))""",
        tenant,
        thread.id,
        thread.session_id,
        json.dumps(values),
    )


def _set_above(known: dict[str, _Thread], thread: _Thread) -> set[str]:
    names: set[str] = set()
    above = known.get(thread.parent_thread_id or "")
    while above is not None:
        names |= above.own.keys()
        above = known.get(above.parent_thread_id or "")
    return names
