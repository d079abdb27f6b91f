"""API keys: made once, shown once, stored as a hash. The lookup of a request also counts against the key's rate."""

import hashlib
import re
import secrets
from collections.abc import Collection
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel

from domain.audit import TENANT
from domain.credentials import name_user
from domain.frozen import Frozen
from domain.ids import ALPHABET
from store import audit
from store.database import Pool, fetch_all


class Right(StrEnum):
    SUBMIT = "submit"
    READ = "read"
    ANSWER = "answer"
    APPROVE = "approve"
    SUPERVISE = "supervise"
    ADMIN = "admin"  # includes all others


class Key(Frozen):
    """A key as it may be shown, without its secret."""

    tenant: str
    id: str
    name: str
    rights: list[Right]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class Used(BaseModel):
    """A valid key at the moment of a request. `wait` > 0: its rate is exhausted for that many seconds."""

    tenant: str
    id: str
    name: str
    digest: str
    rights: list[Right]
    wait: float


_SECRET = re.compile(r"ek_([0-9a-z]{12})_([A-Za-z0-9_-]{43})")
OPERATOR = "operator"  # keys are made on the command line, with access to the database
_COLUMNS = "tenant, id, name, rights, created_at, expires_at, revoked_at"


def digest_of(presented: str) -> str:
    """The stored digest of a key's secret. Any other text gets a digest that no key has."""
    match = _SECRET.fullmatch(presented)
    return _hash(match[2] if match else presented)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


async def create(
    pool: Pool, tenant: str, name: str, rights: Collection[Right], expires_at: datetime | None = None
) -> tuple[Key, str]:
    """Make a key and its secret `ek_<id>_<secret>`, which is not stored."""
    key_id = "".join(secrets.choice(ALPHABET) for _ in range(12))
    secret = secrets.token_urlsafe(32)
    async with pool.acquire() as connection, connection.transaction():
        sql = f"""INSERT INTO api_keys (tenant, id, name, digest, rights, expires_at)
                  VALUES ($1, $2, $3, $4, $5, $6) RETURNING {_COLUMNS}"""
        row = await connection.fetchrow(sql, tenant, key_id, name, _hash(secret), sorted(rights), expires_at)
        assert row is not None
        key = Key(**row)
        subject = f"{key_id} {','.join(key.rights)}"
        await audit.append(
            connection, tenant, TENANT, OPERATOR, "create_key", subject=subject, inputs=key.model_dump_json()
        )
    return key, f"ek_{key_id}_{secret}"


async def use(pool: Pool, presented: str, per_minute: int) -> Used | None:
    """The key that was presented, if it is valid. Lookup and rate limit take one round trip."""
    match = _SECRET.fullmatch(presented)
    if match is None:
        return None
    return await use_digest(pool, match[1], _hash(match[2]), per_minute)


async def use_digest(pool: Pool, key_id: str, digest: str, per_minute: int) -> Used | None:
    """The same for a caller with a digest that this server gave out in the console's cookie."""
    text = await pool.fetchval("SELECT use_key($1, $2, $3)", key_id, digest, float(max(per_minute, 1)))
    return None if text is None else Used.model_validate_json(text)


async def valid(pool: Pool, tenant: str, key_id: str) -> bool:
    """Whether a key that opened a stream is still valid."""
    sql = """SELECT 1 FROM api_keys WHERE tenant = $1 AND id = $2 AND revoked_at IS NULL
                AND (expires_at IS NULL OR expires_at > now())"""
    row = await pool.fetchrow(sql, tenant, key_id)
    return row is not None


async def sign_out(pool: Pool, cookie_id: str, expires_at: datetime) -> None:
    """End a cookie of the console before it expires. Rows of expired ones are not needed any more."""
    await pool.execute("DELETE FROM signed_out_cookies WHERE expires_at < now()")
    sql = "INSERT INTO signed_out_cookies (id, expires_at) VALUES ($1, $2) ON CONFLICT DO NOTHING"
    await pool.execute(sql, cookie_id, expires_at)


async def is_signed_out(pool: Pool, cookie_id: str) -> bool:
    return await pool.fetchval("SELECT 1 FROM signed_out_cookies WHERE id = $1", cookie_id) is not None


async def list_all(pool: Pool, tenant: str | None = None) -> list[Key]:
    """All keys of a tenant, or of every tenant, oldest first."""
    sql = f"SELECT {_COLUMNS} FROM api_keys WHERE $1::text IS NULL OR tenant = $1 ORDER BY created_at, id"
    return await fetch_all(pool, Key, sql, tenant)


async def revoke(pool: Pool, tenant: str, key_id: str) -> bool:
    """Revoke a key; False if it does not exist. Revoking twice is harmless."""
    sql = """WITH gone AS (DELETE FROM credentials WHERE tenant = $1 AND owner = $3)
             UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE tenant = $1 AND id = $2 RETURNING id"""
    values = (key_id, name_user(key_id))
    return await audit.change(pool, tenant, OPERATOR, "revoke_key", sql, *values, subject=key_id) is not None
