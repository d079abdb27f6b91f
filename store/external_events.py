"""Rows of external events: each is written once, then decided. A lock on the key orders an event and a wait for it."""

from dataclasses import dataclass

from domain.triggers import EventAccepted, EventOutcome, EventRecord
from store.database import Connection, Pool

_COLUMNS = ", ".join(EventRecord.model_fields)


@dataclass(frozen=True)
class NewEvent:
    """An event before it is stored. `source` is the id of its trigger; a wait may name its `origin`."""

    source: str
    origin: str
    event_id: str
    type: str
    key: str | None
    text: str  # what an agent reads


async def insert(connection: Connection, tenant: str, event: NewEvent) -> bool:
    """Write an event; False if it is known. A concurrent repetition waits here until the first one is decided."""
    if event.key is not None:
        await lock(connection, tenant, event.key)
    made = await connection.fetchval(
        """INSERT INTO external_events (tenant, source, event_id, type, key, body) VALUES ($1, $2, $3, $4, $5, $6)
           ON CONFLICT DO NOTHING RETURNING 1""",
        tenant,
        event.source,
        event.event_id,
        event.type,
        event.key,
        event.text,
    )
    return made is not None


async def known(connection: Connection, tenant: str, event: NewEvent) -> EventRecord:
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM external_events WHERE tenant = $1 AND source = $2 AND event_id = $3",
        tenant,
        event.source,
        event.event_id,
    )
    assert row is not None
    return EventRecord(**row)


async def decided(
    connection: Connection,
    tenant: str,
    event: NewEvent,
    outcome: EventOutcome,
    whose: tuple[str, str] | None = None,
) -> EventAccepted:
    """Store the decision. `whose`: the session that received the event, and its conversation."""
    session_id, conversation_id = whose or (None, None)
    await connection.execute(
        """UPDATE external_events SET outcome = $4, session_id = $5, conversation_id = $6,
                                      body = CASE WHEN $4 = 'kept' THEN body END
            WHERE tenant = $1 AND source = $2 AND event_id = $3""",
        tenant,
        event.source,
        event.event_id,
        outcome,
        session_id,
        conversation_id,
    )
    return EventAccepted(
        event_id=event.event_id, outcome=outcome, session_id=session_id, conversation_id=conversation_id
    )


async def listing(pool: Pool, tenant: str, source: str, limit: int) -> list[EventRecord]:
    """The events, newest first."""
    rows = await pool.fetch(
        f"""SELECT {_COLUMNS} FROM external_events WHERE tenant = $1 AND source = $2
             ORDER BY created_at DESC, event_id LIMIT $3""",
        tenant,
        source,
        limit,
    )
    return [EventRecord(**row) for row in rows]


async def forget_old(pool: Pool, days: int) -> None:
    """Delete events that are too old for their senders to repeat. Those of GitHub stay as long as their trigger, though
    no wait gets them: GitHub signs no time, so that only the row shows that an old event is sent again."""
    unsigned = """SELECT 1 FROM triggers t WHERE t.tenant = e.tenant AND t.id = e.source AND t.deleted_at IS NULL
                     AND t.rules::jsonb ->> 'signature' = 'github'"""
    old = "e.created_at < now() - make_interval(days => $1)"
    await pool.execute(f"DELETE FROM external_events e WHERE {old} AND NOT EXISTS ({unsigned})", days)
    await pool.execute(f"UPDATE external_events e SET key = NULL, body = NULL WHERE {old} AND key IS NOT NULL", days)


async def lock(connection: Connection, tenant: str, key: str) -> None:
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"{tenant}\n{key}")
