"""Subscriptions: who is notified, of what, and over which channel.

Addresses and secrets are encrypted here and only deliveries decrypt them; people are shown `target_shown`.
"""

import asyncpg

from domain.audit import TENANT
from domain.ids import new_id
from domain.notifications import ROTATION_HOURS, NewSubscription, Subscription, shown_target
from domain.sealing import KeyRing
from store import audit
from store.database import Pool

SEALED_FOR = "subscription"
_COLUMNS = ", ".join(Subscription.model_fields)


def _sealed(keys: KeyRing, tenant: str, subscription_id: str, text: str) -> str:
    return keys.seal(text, tenant, SEALED_FOR, subscription_id)


def _read(row: asyncpg.Record | None) -> Subscription | None:
    return Subscription(**dict(row)) if row else None


async def _change(
    pool: Pool, tenant: str, by: str, action: str, statement: str, *values: object, inputs: str | None = None
) -> asyncpg.Record | None:
    """Make a change and write its audit entry: notifications are part of supervision, so every change is recorded."""
    async with pool.acquire() as connection, connection.transaction():
        row = await connection.fetchrow(statement, tenant, *values)
        if row is not None:
            await audit.append(connection, tenant, TENANT, by, action, subject=row["name"], inputs=inputs)
    return row


async def create(
    pool: Pool, tenant: str, new: NewSubscription, secret: str | None, created_by: str, keys: KeyRing
) -> Subscription | None:
    """Create a subscription; None if the name is taken."""
    subscription_id = new_id()
    row = await _change(
        pool,
        tenant,
        created_by,
        "subscribe",
        f"""INSERT INTO subscriptions (tenant, id, name, channel, target, target_shown, events, every_task,
                                      subagents, secret, created_by)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
            ON CONFLICT (tenant, name) DO NOTHING RETURNING {_COLUMNS}""",
        subscription_id,
        new.name,
        new.channel,
        _sealed(keys, tenant, subscription_id, new.target),
        shown_target(new.channel, new.target),
        new.events,
        new.every_task,
        new.subagents,
        _sealed(keys, tenant, subscription_id, secret) if secret else None,
        created_by,
        inputs=new.model_dump_json(),
    )
    return _read(row)


async def listing(pool: Pool, tenant: str) -> list[Subscription]:
    rows = await pool.fetch(f"SELECT {_COLUMNS} FROM subscriptions WHERE tenant = $1 ORDER BY id", tenant)
    return [Subscription(**dict(row)) for row in rows]


async def get(pool: Pool, tenant: str, subscription_id: str) -> Subscription | None:
    return _read(
        await pool.fetchrow(
            f"SELECT {_COLUMNS} FROM subscriptions WHERE tenant = $1 AND id = $2", tenant, subscription_id
        )
    )


async def remove(pool: Pool, tenant: str, subscription_id: str, by: str) -> bool:
    statement = """WITH gone AS (DELETE FROM subscriptions WHERE tenant = $1 AND id = $2 RETURNING tenant, id, name),
                        ended AS (UPDATE deliveries d
                                     SET status = 'failed', last_error = 'The subscription was removed.', next_at = NULL
                                    FROM gone WHERE d.tenant = gone.tenant AND d.subscription_id = gone.id
                                     AND d.status = 'pending')
                   SELECT name FROM gone"""
    return await _change(pool, tenant, by, "unsubscribe", statement, subscription_id) is not None


async def rotate(
    pool: Pool, tenant: str, subscription_id: str, secret: str, by: str, keys: KeyRing
) -> Subscription | None:
    """Set a new secret; the previous one also signs for a while. None if there is no such webhook."""
    statement = f"""UPDATE subscriptions
                       SET old_secret = secret, old_until = now() + make_interval(hours => $4), secret = $3
                     WHERE tenant = $1 AND id = $2 AND secret IS NOT NULL RETURNING {_COLUMNS}"""
    sealed = _sealed(keys, tenant, subscription_id, secret)
    return _read(await _change(pool, tenant, by, "rotate_secret", statement, subscription_id, sealed, ROTATION_HOURS))


async def enable(pool: Pool, tenant: str, subscription_id: str, by: str) -> Subscription | None:
    statement = f"""UPDATE subscriptions SET status = 'active', failing_since = NULL, last_error = NULL
                     WHERE tenant = $1 AND id = $2 RETURNING {_COLUMNS}"""
    return _read(await _change(pool, tenant, by, "enable_subscription", statement, subscription_id))
