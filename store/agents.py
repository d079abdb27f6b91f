"""Agent versions: written once, never changed; the newest of a tenant's own and the shipped ones is current."""

import hashlib

from domain.agents.definition import AgentDefinition
from domain.audit import TENANT
from domain.sessions.session import AgentRef
from store import audit
from store.database import Connection, Pool

SHIPPED = audit.EVERYBODY  # owner of the definitions that come as files

_CURRENT = """
SELECT DISTINCT ON (name) owner, name, version, definition, created_at FROM agent_versions
 WHERE owner IN ($1, '*') {where} ORDER BY name, created_at DESC, version DESC
"""


async def put(pool: Pool, owner: str, definition: AgentDefinition, created_by: str = "") -> AgentRef:
    """Store a definition as a new version, unless the owner's newest is the same already."""
    text = definition.model_dump_json()
    digest = hashlib.sha256(text.encode()).hexdigest()
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 2))", f"agent/{owner}/{definition.name}"
        )
        newest = await connection.fetchrow(
            "SELECT version, digest FROM agent_versions WHERE owner = $1 AND name = $2 ORDER BY version DESC LIMIT 1",
            owner,
            definition.name,
        )
        if newest and newest["digest"] == digest:
            return AgentRef(owner=owner, name=definition.name, version=newest["version"])
        version = await connection.fetchval(
            "SELECT coalesce(max(version), 0) + 1 FROM agent_versions WHERE owner IN ($1, '*') AND name = $2",
            owner,
            definition.name,
        )
        await connection.execute(
            """INSERT INTO agent_versions (owner, name, version, digest, definition, created_by, created_at)
               VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp())""",
            owner,
            definition.name,
            version,
            digest,
            text,
            created_by,
        )
        said = {"subject": f"{definition.name} {version}", "inputs": text}
        await audit.append(connection, owner, TENANT, created_by, "define_agent", **said)
        return AgentRef(owner=owner, name=definition.name, version=version)


async def current(pool: Pool, tenant: str, name: str) -> tuple[AgentRef, AgentDefinition] | None:
    row = await pool.fetchrow(_CURRENT.format(where="AND name = $2"), tenant, name)
    if row is None:
        return None
    ref = AgentRef(owner=row["owner"], name=row["name"], version=row["version"])
    return ref, AgentDefinition.model_validate_json(row["definition"])


async def all_current(pool: Pool, tenant: str) -> list[tuple[AgentRef, AgentDefinition]]:
    rows = await pool.fetch(_CURRENT.format(where=""), tenant)
    return [
        (
            AgentRef(owner=row["owner"], name=row["name"], version=row["version"]),
            AgentDefinition.model_validate_json(row["definition"]),
        )
        for row in rows
    ]


async def at_version(pool: Pool, tenant: str, name: str, version: int) -> tuple[AgentRef, AgentDefinition] | None:
    """A tenant's own definition before a shipped one of the same number."""
    row = await pool.fetchrow(
        """SELECT owner, definition FROM agent_versions
            WHERE owner IN ($1, '*') AND name = $2 AND version = $3 ORDER BY owner = '*' LIMIT 1""",
        tenant,
        name,
        version,
    )
    if row is None:
        return None
    ref = AgentRef(owner=row["owner"], name=name, version=version)
    return ref, AgentDefinition.model_validate_json(row["definition"])


async def versions(pool: Pool, tenant: str, name: str) -> list[int]:
    rows = await pool.fetch(
        "SELECT DISTINCT version FROM agent_versions WHERE owner IN ($1, '*') AND name = $2 ORDER BY version",
        tenant,
        name,
    )
    return [row["version"] for row in rows]


async def put_private(connection: Connection, ref: AgentRef, definition: AgentDefinition) -> None:
    """A definition that no listing shows and nobody else can ask for: its owner is no tenant."""
    text = definition.model_dump_json()
    await connection.execute(
        """INSERT INTO agent_versions (owner, name, version, digest, definition) VALUES ($1, $2, $3, $4, $5)""",
        ref.owner,
        ref.name,
        ref.version,
        hashlib.sha256(text.encode()).hexdigest(),
        text,
    )


async def load(pool: Pool, ref: AgentRef) -> AgentDefinition:
    text = await pool.fetchval(
        "SELECT definition FROM agent_versions WHERE owner = $1 AND name = $2 AND version = $3",
        ref.owner,
        ref.name,
        ref.version,
    )
    return AgentDefinition.model_validate_json(text)


async def known_tools(pool: Pool) -> set[str]:
    """The tools that workers said they have, and those of the shipped definitions, which a worker has checked."""
    rows = await pool.fetch(
        """SELECT unnest(tools) AS tool FROM workers
           UNION SELECT jsonb_array_elements_text(definition::jsonb -> 'tools') FROM agent_versions WHERE owner = '*'"""
    )
    return {row["tool"] for row in rows}


async def known_hooks(pool: Pool) -> set[str]:
    """The hooks that workers said they have."""
    rows = await pool.fetch("SELECT DISTINCT unnest(hooks) AS hook FROM workers")
    return {row["hook"] for row in rows}


async def known_handlers(pool: Pool) -> set[str]:
    """The handlers that workers said they have, and those of the shipped definitions, which a worker has checked."""
    rows = await pool.fetch(
        """SELECT unnest(handlers) AS handler FROM workers
           UNION SELECT definition::jsonb #>> ARRAY[side, 'handler'] FROM agent_versions,
                        unnest(ARRAY['side_a', 'side_b']) AS side WHERE owner = '*'"""
    )
    return {row["handler"] for row in rows if row["handler"]}
