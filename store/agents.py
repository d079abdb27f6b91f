"""Agent versions: written once and never changed. The newest of a tenant's own and the shipped versions is current,
unless it was removed."""

import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakKeyDictionary

import asyncpg
from pydantic import ValidationError

from domain.agents.definition import AgentDefinition
from domain.audit import TENANT
from domain.errors import Conflict
from domain.sessions.session import AgentRef
from store import audit
from store.database import Connection, Pool

SHIPPED = audit.EVERYBODY  # owner of the definitions that come as files
_PRIVATE = "rerun/"
MOST_KEPT = 128
MOST_VERSIONS = 256
_NAMED = ("tools", "handlers", "hooks")

log = logging.getLogger("errand.store")

_REMOVED = (
    "EXISTS (SELECT FROM agent_removals r WHERE (r.tenant, r.name) = (owner, v.name) AND removed_at >= created_at)"
)
_CURRENT = f"""
SELECT DISTINCT ON (name) owner, name, version, digest, definition, created_at FROM agent_versions v
 WHERE owner IN ($1, '*') {{where}} AND NOT {_REMOVED} ORDER BY name, created_at DESC, version DESC
"""


class UnreadableAgent(Conflict):
    """A stored definition that a newer version wrote or a person changed."""


@lru_cache(maxsize=MOST_KEPT)
def _parse(text: str) -> AgentDefinition:
    """Cache parsed definitions: validation costs more than the read, and a version never changes."""
    return AgentDefinition.model_validate_json(text)


def _define(ref: AgentRef, text: str) -> AgentDefinition:
    try:
        return AgentDefinition.model_validate_json(text) if is_private(ref.owner) else _parse(text)
    except ValidationError:
        why = f"This version of Errand cannot read the definition of the agent {ref.name} (version {ref.version})"
        log.warning("%s, owner %s", why, ref.owner)
        raise UnreadableAgent(f"{why}: put it again.") from None


# is given all current agents of an owner; may refuse
Check = Callable[[Mapping[str, AgentDefinition]], Awaitable[object]]


async def put(
    pool: Pool,
    owner: str,
    definition: AgentDefinition,
    created_by: str = "",
    *,
    made_from: AgentRef | None = None,
    check: Check | None = None,
) -> AgentRef:
    """Store a definition as a new version, unless it equals the owner's newest version and was not removed.
    `made_from`: the version that must still be the current one. `check`: no other agent of the owner changes between it
    and the write, so that two changes that contradict each other cannot both pass it."""
    text = definition.model_dump_json()
    digest = hashlib.sha256(text.encode()).hexdigest()
    async with pool.acquire() as connection, connection.transaction():
        await _lock(connection, owner)
        if check is not None:
            await check(await _list_known(connection, owner))
        if made_from is not None:
            now = await get_current(connection, owner, definition.name)
            if now is None or now[0] != made_from:
                raise Conflict(f"The agent {definition.name} was changed or removed meanwhile. Try again.")
        newest = await _newest(connection, owner, definition.name)
        if newest and newest["definition"] == text and not newest["removed"]:
            return AgentRef(owner=owner, name=definition.name, version=newest["version"])
        sql = "SELECT coalesce(max(version), 0) + 1 FROM agent_versions WHERE owner IN ($1, '*') AND name = $2"
        version = await connection.fetchval(sql, owner, definition.name)
        sql = """INSERT INTO agent_versions (owner, name, version, digest, definition, created_by, created_at)
                 VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp())"""
        await connection.execute(sql, owner, definition.name, version, digest, text, created_by)
        said = {"subject": f"{definition.name} {version}", "inputs": text}
        await audit.append(connection, owner, TENANT, created_by, "define_agent", **said)
        return AgentRef(owner=owner, name=definition.name, version=version)


async def remove(pool: Pool, owner: str, name: str, removed_by: str = "", *, check: Check | None = None) -> bool:
    """Remove an agent, so that nobody can start it. Its versions stay for the sessions that use them. `check`: as for
    `put`."""
    async with pool.acquire() as connection, connection.transaction():
        await _lock(connection, owner)
        if check is not None:
            await check(await _list_known(connection, owner))
        newest = await _newest(connection, owner, name)
        if newest is None or newest["removed"]:
            return False
        await connection.execute(
            """INSERT INTO agent_removals (tenant, name, removed_by, removed_at) VALUES ($1, $2, $3, clock_timestamp())
               ON CONFLICT (tenant, name)
               DO UPDATE SET removed_by = excluded.removed_by, removed_at = excluded.removed_at""",
            owner,
            name,
            removed_by,
        )
        subject = f"{name} {newest['version']}"
        await audit.append(connection, owner, TENANT, removed_by, "remove_agent", subject=subject)
        return True


async def _lock(connection: Connection, owner: str) -> None:
    """One for all agents of an owner, because they refer to each other."""
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 2))", f"agents/{owner}")


async def _list_known(connection: Connection, owner: str) -> dict[str, AgentDefinition]:
    return {ref.name: definition for ref, definition in await list_current(connection, owner)}


async def _newest(connection: Connection, owner: str, name: str) -> asyncpg.Record | None:
    sql = f"""SELECT version, definition, {_REMOVED} AS removed FROM agent_versions v WHERE owner = $1 AND name = $2
               ORDER BY version DESC LIMIT 1"""
    return await connection.fetchrow(sql, owner, name)


async def find_connectors(pool: Pool, tenant: str, name: str) -> list[str]:
    """The connectors that send their messages to this agent."""
    rows = await pool.fetch("SELECT name FROM connectors WHERE tenant = $1 AND agent = $2 ORDER BY name", tenant, name)
    return [row["name"] for row in rows]


async def list_shipped(pool: Pool) -> set[str]:
    """The names of the agents that come as files, except those that were removed."""
    rows = await pool.fetch(f"SELECT DISTINCT name FROM agent_versions v WHERE owner = '*' AND NOT {_REMOVED}")
    return {row["name"] for row in rows}


@dataclass(frozen=True)
class TaskAgent:
    """An agent as a new task resolves it."""

    ref: AgentRef
    definition: AgentDefinition
    tenant_has_variables: bool  # tenant-wide ones; of a plain agent none are looked up then


async def get_for_task(pool: Pool, tenant: str, name: str) -> TaskAgent | None:
    sql = f"""SELECT v.*, EXISTS (SELECT FROM tenant_variables WHERE tenant = $1) AS tenant_has_variables
                FROM ({_CURRENT.format(where="AND name = $2")}) v"""
    row = await pool.fetchrow(sql, tenant, name)
    return TaskAgent(*_read(row), row["tenant_has_variables"]) if row else None


async def get_current(pool: "Pool | Connection", tenant: str, name: str) -> tuple[AgentRef, AgentDefinition] | None:
    row = await pool.fetchrow(_CURRENT.format(where="AND name = $2"), tenant, name)
    return _read(row) if row else None


async def find_current(pool: "Pool | Connection", tenant: str, name: str) -> tuple[AgentRef, AgentDefinition] | None:
    """For another agent, which must work without this one: None also if it cannot be read, as in a list."""
    with contextlib.suppress(UnreadableAgent):
        return await get_current(pool, tenant, name)
    return None


def _read(row: asyncpg.Record) -> tuple[AgentRef, AgentDefinition]:
    ref = AgentRef(owner=row["owner"], name=row["name"], version=row["version"])
    return ref, _define(ref, row["definition"])


async def list_current(pool: "Pool | Connection", tenant: str) -> list[tuple[AgentRef, AgentDefinition]]:
    found = []
    for row in await pool.fetch(_CURRENT.format(where=""), tenant):
        with contextlib.suppress(UnreadableAgent):
            found.append(_read(row))
    return found


async def get_version(pool: Pool, tenant: str, name: str, version: int) -> tuple[AgentRef, AgentDefinition] | None:
    """A definition by its version; a tenant's own comes before a shipped one with the same number."""
    sql = """SELECT owner, name, version, definition FROM agent_versions
              WHERE owner IN ($1, '*') AND name = $2 AND version = $3 ORDER BY owner = '*' LIMIT 1"""
    row = await pool.fetchrow(sql, tenant, name, version)
    return _read(row) if row else None


async def list_versions(pool: Pool, tenant: str, name: str) -> list[int]:
    sql = "SELECT DISTINCT version FROM agent_versions WHERE owner IN ($1, '*') AND name = $2 ORDER BY version"
    return [row["version"] for row in await pool.fetch(sql, tenant, name)]


def private_owner(session_id: str) -> str:
    """The owner of a definition that only one session has; the roles and the retention know its form."""
    return f"{_PRIVATE}{session_id}"


def is_private(owner: str) -> bool:
    return owner.startswith(_PRIVATE)


async def put_private(connection: Connection, ref: AgentRef, definition: AgentDefinition) -> None:
    """Store a definition that listings do not show and nobody else can request: its owner is not a tenant."""
    text = definition.model_dump_json()
    sql = """INSERT INTO agent_versions (owner, name, version, digest, definition) VALUES ($1, $2, $3, $4, $5)"""
    await connection.execute(sql, ref.owner, ref.name, ref.version, hashlib.sha256(text.encode()).hexdigest(), text)


async def load(pool: "Pool | Connection", ref: AgentRef) -> AgentDefinition:
    sql = "SELECT definition FROM agent_versions WHERE owner = $1 AND name = $2 AND version = $3"
    text = await pool.fetchval(sql, ref.owner, ref.name, ref.version)
    return _define(ref, text)


async def list_known_names(pool: Pool) -> dict[str, set[str]]:
    """The tools, handlers and hooks that workers reported, and the tools and handlers of the shipped definitions, which
    a worker has checked."""
    sql = """WITH shipped AS (SELECT definition::jsonb AS one FROM agent_versions WHERE owner = '*')
             SELECT 'tools' AS kind, unnest(tools) AS name FROM workers
             UNION SELECT 'handlers', unnest(handlers) FROM workers
             UNION SELECT 'hooks', unnest(hooks) FROM workers
             UNION SELECT 'tools', jsonb_array_elements_text(one -> 'tools') FROM shipped
             UNION SELECT 'handlers', one #>> '{side_a,handler}' FROM shipped
             UNION SELECT 'handlers', one #>> '{side_b,handler}' FROM shipped"""
    rows = await pool.fetch(sql)
    return {kind: {row["name"] for row in rows if row["kind"] == kind and row["name"]} for kind in _NAMED}


# The graph of an agent: the agent itself and all agents that it can start or hand its thread to, as defined now.


MOST = 200  # agents: a graph could include all agents of a tenant


async def find_reachable(pool: "Pool | Connection", tenant: str, agent: AgentDefinition) -> dict[str, AgentDefinition]:
    found = {agent.name: agent}
    waiting = [agent]
    while waiting:
        for name in waiting.pop().references:
            if name not in found and len(found) < MOST and (known := await find_current(pool, tenant, name)):
                found[name] = known[1]
                waiting.append(known[1])
    return found


# The versions that a process used last through a pool, the newest last: a version never changes.
_VIEWS: WeakKeyDictionary[Pool, dict[AgentRef, AgentDefinition]] = WeakKeyDictionary()


async def load_view(pool: Pool, ref: AgentRef) -> AgentDefinition:
    """An agent version as its side has it. Versions of a single session are read each time: there is no end of them."""
    known = _VIEWS.setdefault(pool, {})
    found = known.pop(ref, None)
    if found is None:
        found = (await load(pool, ref)).for_side(ref.side)
    if not is_private(ref.owner):
        known[ref] = found
        if len(known) > MOST_VERSIONS:
            del known[next(iter(known))]
    return found
