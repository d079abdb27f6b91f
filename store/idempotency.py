"""Responses to requests with an Idempotency-Key: found by tenant and key, kept for at least a day."""

from pydantic import BaseModel

from domain.errors import Invalid
from store.database import Connection, Pool

KEPT_HOURS = 24


def reused() -> Invalid:
    return Invalid("This Idempotency-Key was used for another request before.", type="idempotency-key-reused")


class StoredResponse(BaseModel):
    digest: str
    status: int
    response: str


async def find(pool: "Pool | Connection", tenant: str, key: str) -> StoredResponse | None:
    row = await pool.fetchrow(
        "SELECT digest, status, response FROM idempotency WHERE tenant = $1 AND key = $2", tenant, key
    )
    return StoredResponse(**dict(row)) if row else None


async def reserve(pool: "Pool | Connection", tenant: str, key: str, answered: StoredResponse) -> StoredResponse:
    """Write the response before the operation. Returns the stored one, which may be an earlier request's."""
    await pool.execute(
        """INSERT INTO idempotency (tenant, key, digest, status, response) VALUES ($1, $2, $3, $4, $5)
           ON CONFLICT DO NOTHING""",
        tenant,
        key,
        answered.digest,
        answered.status,
        answered.response,
    )
    return await find(pool, tenant, key) or answered


async def forget(pool: Pool, tenant: str, key: str) -> None:
    """Remove the record of an operation that was refused, so that it can be tried again."""
    await pool.execute("DELETE FROM idempotency WHERE tenant = $1 AND key = $2", tenant, key)


async def forget_old(pool: Pool) -> None:
    await pool.execute("DELETE FROM idempotency WHERE created_at < now() - make_interval(hours => $1)", KEPT_HOURS)
