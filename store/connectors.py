"""Connectors: the settings by which outside services reach a tenant's agents. Only the API's hook and deliveries read
their secrets."""

from dataclasses import dataclass, field

import asyncpg

from domain.channels import ConnectorConfig, ConnectorRules, ConnectorSecrets
from domain.ids import new_id
from domain.sealing import KeyRing
from store import audit
from store.database import Pool

SEALED_FOR = "connector"
_COLUMNS = ", ".join(ConnectorConfig.model_fields)


@dataclass(frozen=True)
class Hook:
    """A connector, found by the id in a service's request."""

    tenant: str
    connector: ConnectorConfig
    secrets: ConnectorSecrets = field(repr=False)


def open_secrets(keys: KeyRing, tenant: str, name: str, secrets: str) -> ConnectorSecrets:
    return ConnectorSecrets.model_validate_json(keys.unseal(secrets, tenant, SEALED_FOR, name))


async def put(
    pool: Pool, tenant: str, name: str, rules: ConnectorRules, secrets: ConnectorSecrets, by: str, keys: KeyRing
) -> ConnectorConfig:
    """Create a connector, or change the one with this name, which keeps its id."""
    sql = f"""INSERT INTO connectors (tenant, id, name, kind, agent, target, debounce_ms, secrets, created_by)
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
              ON CONFLICT (tenant, name) DO UPDATE SET agent = $5, target = $6, debounce_ms = $7, secrets = $8
              RETURNING {_COLUMNS}"""
    sealed = keys.seal(secrets.model_dump_json(), tenant, SEALED_FOR, name)
    given = (rules.kind, rules.agent, rules.target, rules.debounce_ms, sealed)
    row = await audit.change(pool, tenant, by, "put_connector", sql, new_id(), name, *given, by)
    assert row is not None
    return ConnectorConfig(**row)


async def list_all(pool: Pool, tenant: str) -> list[ConnectorConfig]:
    return [
        ConnectorConfig(**row)
        for row in await pool.fetch(f"SELECT {_COLUMNS} FROM connectors WHERE tenant = $1", tenant)
    ]


async def find(pool: Pool, tenant: str, name: str, keys: KeyRing) -> Hook | None:
    return _hook(await pool.fetchrow("SELECT * FROM connectors WHERE tenant = $1 AND name = $2", tenant, name), keys)


async def of_id(pool: Pool, connector_id: str, keys: KeyRing) -> Hook | None:
    """The connector of a request that carries no API key; its id decides the tenant."""
    return _hook(await pool.fetchrow("SELECT * FROM find_connector($1)", connector_id), keys)


async def remove(pool: Pool, tenant: str, name: str, by: str) -> None:
    """Remove a connector and fail its pending replies; its conversations stay."""
    sql = """WITH gone AS (DELETE FROM connectors WHERE tenant = $1 AND name = $2 RETURNING tenant, id, name),
                  ended AS (UPDATE deliveries d
                               SET status = 'failed', last_error = 'The connector was removed.', next_at = NULL
                              FROM gone WHERE d.tenant = gone.tenant AND d.subscription_id = gone.id
                               AND d.status = 'pending')
             SELECT name FROM gone"""
    await audit.change(pool, tenant, by, "remove_connector", sql, name)


def _hook(row: asyncpg.Record | None, keys: KeyRing) -> Hook | None:
    if row is None:
        return None
    return Hook(row["tenant"], ConnectorConfig(**row), open_secrets(keys, row["tenant"], row["name"], row["secrets"]))
