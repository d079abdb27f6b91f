"""Values of variables that a tenant sets for all its threads. Secrets are encrypted like those of a thread."""

from collections.abc import Mapping
from datetime import datetime

from pydantic import BaseModel

from domain.audit import TENANT
from domain.errors import Conflict
from store import audit
from store.database import Pool

MOST = 200  # of a tenant


class TenantVariable(BaseModel):
    name: str
    value: str  # as it is stored
    updated_by: str
    updated_at: datetime


async def listing(pool: Pool, tenant: str) -> list[TenantVariable]:
    rows = await pool.fetch(
        "SELECT name, value, updated_by, updated_at FROM tenant_variables WHERE tenant = $1 ORDER BY name", tenant
    )
    return [TenantVariable(**row) for row in rows]


async def values(pool: Pool, tenant: str) -> dict[str, str]:
    return {one.name: one.value for one in await listing(pool, tenant)}


async def put(pool: Pool, tenant: str, given: Mapping[str, str], by: str) -> None:
    """Set these values; the others stay."""
    async with pool.acquire() as connection, connection.transaction():
        # One request at a time, so that two concurrent ones cannot exceed the limit.
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 4))", f"variables/{tenant}")
        await connection.execute(
            """INSERT INTO tenant_variables (tenant, name, value, updated_by)
               SELECT $1, name, value, $4 FROM unnest($2::text[], $3::text[]) AS given(name, value)
               ON CONFLICT (tenant, name) DO UPDATE
               SET value = excluded.value, updated_by = excluded.updated_by, updated_at = now()""",
            tenant,
            list(given),
            list(given.values()),
            by,
        )
        found = await connection.fetchval("SELECT count(*) FROM tenant_variables WHERE tenant = $1", tenant)
        if found > MOST:
            raise Conflict(f"There may be at most {MOST} variables of all threads.")
        subject = ", ".join(sorted(given))
        await audit.append(connection, tenant, TENANT, by, "set_tenant_variables", subject=subject[:500])


async def remove(pool: Pool, tenant: str, name: str, by: str) -> bool:
    async with pool.acquire() as connection, connection.transaction():
        found = await connection.fetchval(
            "DELETE FROM tenant_variables WHERE tenant = $1 AND name = $2 RETURNING name", tenant, name
        )
        if found is not None:
            await audit.append(connection, tenant, TENANT, by, "remove_tenant_variable", subject=name)
    return found is not None
