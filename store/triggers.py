"""Triggers: their rows, and the secrets that verify their events."""

from dataclasses import dataclass, field

import asyncpg

from domain.audit import TENANT
from domain.ids import new_id
from domain.sealing import KeyRing
from domain.sessions.new_session import NewSession
from domain.triggers import EventTrigger, TriggerRules
from store import audit
from store.database import Pool

SEALED_FOR = "trigger"
_COLUMNS = ", ".join(EventTrigger.model_fields)


@dataclass(frozen=True)
class SignedTrigger:
    trigger: EventTrigger
    secret: str = field(repr=False)


def _read(row: asyncpg.Record) -> EventTrigger:
    given = {name: row[name] for name in EventTrigger.model_fields}
    session = NewSession.model_validate_json(given["session"]) if given["session"] else None
    return EventTrigger(**given | {"rules": TriggerRules.model_validate_json(given["rules"]), "session": session})


async def put(
    pool: Pool,
    tenant: str,
    name: str,
    rules: TriggerRules,
    session: NewSession | None,
    prompt: str,
    secret: str,
    by: str,
    keys: KeyRing,
) -> EventTrigger:
    """Create a trigger, or change the one with this name, which keeps its id and its conversations."""
    async with pool.acquire() as connection, connection.transaction():
        row = await connection.fetchrow(
            f"""INSERT INTO triggers (tenant, id, name, rules, session, prompt, secret, created_by)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
                ON CONFLICT (tenant, name) WHERE deleted_at IS NULL
                DO UPDATE SET rules = $4, session = $5, prompt = $6, secret = $7
                RETURNING {_COLUMNS}""",
            tenant,
            new_id(),
            name,
            rules.model_dump_json(exclude_unset=True),
            session.model_dump_json(exclude_defaults=True) if session else None,
            prompt,
            keys.seal(secret, tenant, SEALED_FOR, name),
            by,
        )
        assert row is not None
        await audit.append(connection, tenant, TENANT, by, "put_trigger", subject=name, inputs=rules.model_dump_json())
    return _read(row)


async def find(pool: Pool, tenant: str, name: str, keys: KeyRing) -> SignedTrigger | None:
    row = await pool.fetchrow(
        "SELECT * FROM triggers WHERE tenant = $1 AND name = $2 AND deleted_at IS NULL", tenant, name
    )
    return _signed(row, keys) if row else None


async def of_any_tenant(pool: Pool, name: str, keys: KeyRing, limit: int) -> list[SignedTrigger]:
    """The triggers that an event without a key may address: one by id, or one of each tenant by name."""
    rows = await pool.fetch("SELECT * FROM find_triggers($1, $2)", name, limit)
    return [_signed(row, keys) for row in rows]


async def listing(pool: Pool, tenant: str) -> list[EventTrigger]:
    rows = await pool.fetch(
        f"SELECT {_COLUMNS} FROM triggers WHERE tenant = $1 AND deleted_at IS NULL ORDER BY name", tenant
    )
    return [_read(row) for row in rows]


async def remove(pool: Pool, tenant: str, name: str, by: str) -> None:
    """Delete a trigger; its conversations and the list of its events stay."""
    async with pool.acquire() as connection, connection.transaction():
        gone = await connection.fetchval(
            """UPDATE triggers SET deleted_at = now(), secret = '' WHERE tenant = $1 AND name = $2
                  AND deleted_at IS NULL RETURNING id""",
            tenant,
            name,
        )
        if gone is not None:
            await audit.append(connection, tenant, TENANT, by, "remove_trigger", subject=name)


def _signed(row: asyncpg.Record, keys: KeyRing) -> SignedTrigger:
    return SignedTrigger(_read(row), keys.unseal(row["secret"], row["tenant"], SEALED_FOR, row["name"]))
