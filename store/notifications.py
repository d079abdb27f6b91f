"""Notifications: who is notified of what and over which channel, and the outbox of deliveries.

Addresses and secrets are encrypted here and only deliveries decrypt them; people are shown `target_shown`.
"""

from datetime import datetime

from errand.models import Delivery, Subscription
from pydantic import BaseModel, Field

from domain.channels import ConnectorKind, ConnectorSecrets
from domain.ids import new_id
from domain.notifications import (
    ROTATION_HOURS,
    AttemptRecord,
    ChannelName,
    DeliveryStatus,
    NewSubscription,
    SubscriptionStatus,
    shorten_target,
)
from domain.sealing import KeyRing
from store import audit, connectors
from store.database import Pool, call, fetch_all, fetch_one, read_row

SEALED_FOR = "subscription"
_SUBSCRIPTION_COLUMNS = """id, name, channel, target_shown AS target, events, every_task, subagents, status,
                           failing_since, last_error, old_until AS old_secret_until, created_by, created_at"""


def _seal(keys: KeyRing, tenant: str, subscription_id: str, text: str) -> str:
    return keys.seal(text, tenant, SEALED_FOR, subscription_id)


async def create_subscription(
    pool: Pool, tenant: str, new: NewSubscription, secret: str | None, created_by: str, keys: KeyRing
) -> Subscription | None:
    """Create a subscription; None if the name is taken."""
    subscription_id = new_id()
    row = await audit.change(
        pool,
        tenant,
        created_by,
        "subscribe",
        f"""INSERT INTO subscriptions (tenant, id, name, channel, target, target_shown, events, every_task,
                                      subagents, secret, created_by)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
            ON CONFLICT (tenant, name) DO NOTHING RETURNING {_SUBSCRIPTION_COLUMNS}""",
        subscription_id,
        new.name,
        new.channel,
        _seal(keys, tenant, subscription_id, new.target),
        shorten_target(new.channel, new.target),
        new.events,
        new.every_task,
        new.subagents,
        _seal(keys, tenant, subscription_id, secret) if secret else None,
        created_by,
        inputs=new.model_dump_json(),
    )
    return read_row(Subscription, row)


async def list_subscriptions(pool: Pool, tenant: str) -> list[Subscription]:
    sql = f"SELECT {_SUBSCRIPTION_COLUMNS} FROM subscriptions WHERE tenant = $1 ORDER BY id"
    return await fetch_all(pool, Subscription, sql, tenant)


async def get_subscription(pool: Pool, tenant: str, subscription_id: str) -> Subscription | None:
    sql = f"SELECT {_SUBSCRIPTION_COLUMNS} FROM subscriptions WHERE tenant = $1 AND id = $2"
    return await fetch_one(pool, Subscription, sql, tenant, subscription_id)


async def remove_subscription(pool: Pool, tenant: str, subscription_id: str, by: str) -> bool:
    statement = """WITH gone AS (DELETE FROM subscriptions WHERE tenant = $1 AND id = $2 RETURNING tenant, id, name),
                        ended AS (UPDATE deliveries d
                                     SET status = 'failed', last_error = 'The subscription was removed.', next_at = NULL
                                    FROM gone WHERE d.tenant = gone.tenant AND d.subscription_id = gone.id
                                     AND d.status = 'pending')
                   SELECT name FROM gone"""
    return await audit.change(pool, tenant, by, "unsubscribe", statement, subscription_id) is not None


async def rotate_secret(
    pool: Pool, tenant: str, subscription_id: str, secret: str, by: str, keys: KeyRing
) -> Subscription | None:
    """Set a new secret; the previous one also signs for a while. None if there is no such webhook."""
    statement = f"""UPDATE subscriptions
                       SET old_secret = secret, old_until = now() + make_interval(hours => $4), secret = $3
                     WHERE tenant = $1 AND id = $2 AND secret IS NOT NULL RETURNING {_SUBSCRIPTION_COLUMNS}"""
    sealed = _seal(keys, tenant, subscription_id, secret)
    values = (subscription_id, sealed, ROTATION_HOURS)
    return read_row(Subscription, await audit.change(pool, tenant, by, "rotate_secret", statement, *values))


async def enable_subscription(pool: Pool, tenant: str, subscription_id: str, by: str) -> Subscription | None:
    statement = f"""UPDATE subscriptions SET status = 'active', failing_since = NULL, last_error = NULL
                     WHERE tenant = $1 AND id = $2 RETURNING {_SUBSCRIPTION_COLUMNS}"""
    row = await audit.change(pool, tenant, by, "enable_subscription", statement, subscription_id)
    return read_row(Subscription, row)


# The outbox: one row for each event and subscription, written with the event. Each has a lane, whose
# workflow sends them one at a time, in the order of their numbers.


_COLUMNS = """id, subscription_id, event, session_id AS task_id, status, attempts, last_error, next_at, created_at,
              delivered_at"""
# the receiver of a delivery is a subscription, or a connector for replies
_RECEIVERS = """LEFT JOIN subscriptions s ON s.tenant = d.tenant AND s.id = d.subscription_id
             LEFT JOIN connectors k ON k.tenant = d.tenant AND k.id = d.subscription_id"""


class Job(BaseModel):
    """The data for one attempt. It never leaves the activity that loads it."""

    id: str
    event: str
    session_id: str | None
    seq: int | None  # of the event in its session
    body: str
    begun_at: datetime  # when it was due
    wait_s: float  # until its next attempt, as planned after the last one; 0: none is planned
    subscription: SubscriptionStatus | None  # None: it was removed
    channel: ChannelName | None
    target: str = Field(default="", repr=False)
    signing: list[str] = Field(default_factory=list, repr=False)  # the secrets that are valid now
    connector: ConnectorKind | None = None  # set if it belongs to a channel instead of a subscription
    secrets: ConnectorSecrets = ConnectorSecrets()


class WaitingDelivery(BaseModel):
    """A delivery for which the workflow of its lane must run."""

    tenant: str
    id: str
    lane: str
    event: str
    name: str  # of the subscription


async def load_first(pool: Pool, tenant: str, lane: str, keys: KeyRing) -> Job | None:
    """The data for an attempt of the first delivery that waits in a lane, with address and secrets in plain text."""
    sql = f"""SELECT d.id, d.event, d.session_id, d.seq, d.body, d.begun_at, s.status AS subscription, s.channel,
                    coalesce(extract(epoch FROM d.next_at - now()), 0) AS wait_s,
                    coalesce(s.target, '') AS target, d.subscription_id, k.kind AS connector, k.name, k.secrets,
                    array_remove(ARRAY[s.secret, CASE WHEN s.old_until > now() THEN s.old_secret END], NULL) AS signing
               FROM deliveries d {_RECEIVERS}
              WHERE d.tenant = $1 AND d.lane = $2 AND d.status = 'pending' ORDER BY d.number LIMIT 1"""
    row = await pool.fetchrow(sql, tenant, lane)
    if row is None:
        return None
    opened = [
        keys.unseal(text, tenant, SEALED_FOR, row["subscription_id"]) for text in (row["target"], *row["signing"])
    ]
    secrets = (
        connectors.open_secrets(keys, tenant, row["name"], row["secrets"]) if row["connector"] else ConnectorSecrets()
    )
    return Job(**{**row, "target": opened[0], "signing": opened[1:], "secrets": secrets})


async def has_waiting(pool: Pool, tenant: str, lane: str) -> bool:
    statement = "SELECT EXISTS (SELECT 1 FROM deliveries WHERE tenant = $1 AND lane = $2 AND status = 'pending')"
    return bool(await pool.fetchval(statement, tenant, lane))


async def record_attempt(pool: Pool, attempt: AttemptRecord) -> DeliveryStatus:
    """Record the result of an attempt; returns the status of the delivery."""
    return DeliveryStatus(await call(pool, "record_attempt", attempt))


async def postpone(pool: Pool, tenant: str, delivery_id: str, seconds: float) -> None:
    """Note when the next attempt is due; nothing was sent."""
    statement = "UPDATE deliveries SET next_at = now() + make_interval(secs => $3) WHERE tenant = $1 AND id = $2"
    await pool.execute(statement, tenant, delivery_id, seconds)


async def drop_delivery(pool: Pool, tenant: str, delivery_id: str) -> None:
    """Remove a delivery that turned out to have nothing to send."""
    sql = "DELETE FROM deliveries WHERE tenant = $1 AND id = $2 AND status = 'pending'"
    await pool.execute(sql, tenant, delivery_id)


async def find_undispatched(pool: Pool, limit: int = 100) -> list[WaitingDelivery]:
    return await _waiting(pool, "NOT d.dispatched", limit)


async def find_stranded(pool: Pool, seconds: float, limit: int = 500) -> list[WaitingDelivery]:
    """Deliveries whose next attempt is overdue, perhaps because the workflow of their lane was lost."""
    first = """NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.tenant = d.tenant AND o.lane = d.lane
                               AND o.status = 'pending' AND o.number < d.number)"""
    overdue = f"coalesce(d.next_at, d.begun_at) < now() - make_interval(secs => {seconds:f})"
    return await _waiting(pool, f"d.dispatched AND {overdue} AND {first}", limit)


async def _waiting(pool: Pool, condition: str, limit: int) -> list[WaitingDelivery]:
    sql = f"""SELECT d.tenant, d.id, d.lane, d.event, coalesce(s.name, k.name, '') AS name
                FROM deliveries d {_RECEIVERS}
               WHERE d.status = 'pending' AND {condition} ORDER BY d.number LIMIT $1"""
    return await fetch_all(pool, WaitingDelivery, sql, limit)


async def mark_dispatched(pool: Pool, tenant: str, delivery_id: str) -> None:
    await pool.execute("UPDATE deliveries SET dispatched = true WHERE tenant = $1 AND id = $2", tenant, delivery_id)


async def get_delivery(pool: Pool, tenant: str, delivery_id: str) -> Delivery | None:
    sql = f"SELECT {_COLUMNS} FROM deliveries WHERE tenant = $1 AND id = $2"
    return await fetch_one(pool, Delivery, sql, tenant, delivery_id)


async def find_deliveries(
    pool: Pool,
    tenant: str,
    *,
    status: str | None,
    subscription_id: str | None,
    session_id: str | None,
    before_id: str | None,
    limit: int,
) -> list[Delivery]:
    """The deliveries, newest first."""
    sql = f"""SELECT {_COLUMNS} FROM deliveries
               WHERE tenant = $1 AND ($2::text IS NULL OR status = $2) AND ($3::text IS NULL OR subscription_id = $3)
                 AND ($4::text IS NULL OR session_id = $4) AND ($5::text IS NULL OR id < $5)
               ORDER BY id DESC LIMIT $6"""
    return await fetch_all(pool, Delivery, sql, tenant, status, subscription_id, session_id, before_id, limit)


async def deliver_again(pool: Pool, tenant: str, delivery_id: str) -> Delivery | None:
    """Deliver again in a new row. None if the delivery does not exist, has no receiver any more, or lost its
    content."""
    sql = f"""UPDATE deliveries d SET status = 'pending', dispatched = false, begun_at = now(), next_at = NULL
               WHERE tenant = $1 AND id = $2 AND body <> ''
                 AND (EXISTS (SELECT 1 FROM connectors k WHERE k.tenant = d.tenant AND k.id = d.subscription_id)
                      OR EXISTS (SELECT 1 FROM subscriptions s WHERE s.tenant = d.tenant AND s.id = d.subscription_id
                                    AND s.status = 'active')) RETURNING {_COLUMNS}"""
    row = await pool.fetchrow(sql, tenant, delivery_id)
    return read_row(Delivery, row)


async def forget_old_deliveries(pool: Pool, days: int) -> None:
    """Delete deliveries that ended long ago."""
    sql = "DELETE FROM deliveries WHERE status <> 'pending' AND created_at < now() - make_interval(days => $1)"
    await pool.execute(sql, days)
