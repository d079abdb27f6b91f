"""Credentials by name; the secrets are encrypted."""

from domain.audit import TENANT
from domain.credentials import Credential, CredentialRules, CredentialSpec
from domain.sealing import KeyRing
from store import audit
from store.database import Pool

SEALED_FOR = "credential"


async def put(pool: Pool, tenant: str, name: str, spec: CredentialSpec, by: str, keys: KeyRing) -> bool:
    """True if it is new."""
    async with pool.acquire() as connection, connection.transaction():
        new: bool = await connection.fetchval(
            """INSERT INTO credentials (tenant, name, rules, secret) VALUES ($1, $2, $3, $4)
               ON CONFLICT (tenant, name) DO UPDATE
               SET rules = excluded.rules, secret = excluded.secret, updated_at = now() RETURNING xmax = 0""",
            tenant,
            name,
            spec.rules().model_dump_json(),
            keys.seal(spec.secret, tenant, SEALED_FOR, name),
        )
        inputs = spec.rules().model_dump_json()
        await audit.append(connection, tenant, TENANT, by, "put_credential", subject=name, inputs=inputs)
    return new


async def list_all(pool: Pool, tenant: str) -> dict[str, CredentialRules]:
    rows = await pool.fetch("SELECT name, rules FROM credentials WHERE tenant = $1 ORDER BY name", tenant)
    return {row["name"]: CredentialRules.model_validate_json(row["rules"]) for row in rows}


async def open_named(pool: Pool, tenant: str, names: list[str], keys: KeyRing) -> dict[str, Credential]:
    """Those that exist, with their secrets. Raises SealingError if one cannot be read."""
    rows = await pool.fetch(
        "SELECT name, rules, secret FROM credentials WHERE tenant = $1 AND name = ANY($2::text[])", tenant, names
    )
    return {
        row["name"]: Credential(
            name=row["name"],
            rules=CredentialRules.model_validate_json(row["rules"]),
            secret=keys.unseal(row["secret"], tenant, SEALED_FOR, row["name"]),
        )
        for row in rows
    }


async def remove(pool: Pool, tenant: str, name: str, by: str) -> bool:
    async with pool.acquire() as connection, connection.transaction():
        found = await connection.fetchval(
            "DELETE FROM credentials WHERE tenant = $1 AND name = $2 RETURNING name", tenant, name
        )
        if found is not None:
            await audit.append(connection, tenant, TENANT, by, "remove_credential", subject=name)
    return found is not None
