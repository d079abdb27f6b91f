"""Schedules: the rows are authoritative, and Temporal is updated to match them, at once or by a sweep."""

import contextlib
from collections.abc import Sequence
from datetime import datetime

import asyncpg

from domain.amounts import format_count
from domain.audit import TENANT
from domain.channels import Address
from domain.ids import new_id
from domain.missions import MissionStatus
from domain.notifications import NewNotice, SchedulePaused
from domain.schedules import Schedule, ScheduleRules
from domain.sessions.new_session import NewSession
from store import addresses, audit, notices, workspaces
from store.database import Connection, Pool, fetch_all, fetch_one, keep_readable
from store.workspaces import Manifest

COLUMNS = ", ".join(name for name in Schedule.model_fields)


async def create(
    pool: Pool,
    tenant: str,
    rules: ScheduleRules,
    session: NewSession,
    prompt: str,
    files: Manifest,
    created_by: str,
) -> Schedule | None:
    """Create a schedule; None if the name is taken. Its address and the workspace of its runs exist from here on."""
    schedule_id = new_id()
    async with pool.acquire() as connection, connection.transaction():
        conversation_id = await addresses.lock(connection, tenant, Address.schedule(schedule_id), rules.conversation_id)
        row = await connection.fetchrow(
            f"""INSERT INTO schedules (tenant, id, name, rules, session, prompt, conversation_id, status, created_by)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
                ON CONFLICT (tenant, name) WHERE deleted_at IS NULL DO NOTHING RETURNING {COLUMNS}""",
            tenant,
            schedule_id,
            rules.name,
            rules.model_dump_json(),
            session.model_dump_json(exclude_defaults=True),
            prompt,
            conversation_id,
            MissionStatus.WORKING if rules.mission else None,
            created_by,
        )
        if row is None:
            sql = "DELETE FROM addresses WHERE tenant = $1 AND conversation_id = $2 AND key = $3"
            await connection.execute(sql, tenant, conversation_id, schedule_id)
            return None
        if files and rules.conversation_id is None:
            await workspaces.change_in(connection, tenant, conversation_id, lambda known: {**known, **files})
        inputs = rules.model_dump_json()
        await audit.append(connection, tenant, TENANT, created_by, "create_schedule", subject=rules.name, inputs=inputs)
        return Schedule(**row)


async def replace(
    pool: Pool, tenant: str, schedule_id: str, rules: ScheduleRules, session: NewSession, prompt: str, by: str
) -> Schedule | None:
    """Change a schedule; None if the name belongs to another one. The conversation stays."""
    sql = f"""UPDATE schedules SET name = $3, rules = $4, session = $5, prompt = $6, version = version + 1
               WHERE tenant = $1 AND id = $2 AND deleted_at IS NULL RETURNING {COLUMNS}, name"""
    given = rules.model_dump_json()
    values = (schedule_id, rules.name, given, session.model_dump_json(exclude_defaults=True), prompt)
    with contextlib.suppress(asyncpg.UniqueViolationError):
        row = await audit.change(pool, tenant, by, "replace_schedule", sql, *values, inputs=given)
        return Schedule(**row) if row else None
    return None


async def set_paused(
    pool: Pool, tenant: str, schedule_id: str, paused: bool, by: str, reason: str | None = None
) -> Schedule | None:
    """Pause or resume; resuming resets the count of failures."""
    sql = f"""UPDATE schedules SET paused = $3, pause_reason = $4, version = version + 1,
                                   failures = CASE WHEN $3 THEN failures ELSE 0 END
               WHERE tenant = $1 AND id = $2 AND deleted_at IS NULL RETURNING {COLUMNS}, name"""
    action = "pause_schedule" if paused else "resume_schedule"
    row = await audit.change(pool, tenant, by, action, sql, schedule_id, paused, reason if paused else None)
    return Schedule(**row) if row else None


async def delete(pool: Pool, tenant: str, schedule_id: str, by: str) -> Schedule | None:
    """Delete a schedule; its runs and its conversation stay."""
    sql = f"""UPDATE schedules SET deleted_at = now(), version = version + 1
               WHERE tenant = $1 AND id = $2 AND deleted_at IS NULL RETURNING {COLUMNS}, name"""
    row = await audit.change(pool, tenant, by, "delete_schedule", sql, schedule_id)
    return Schedule(**row) if row else None


async def get(pool: "Pool | Connection", tenant: str, schedule_id: str, *, lock: bool = False) -> Schedule | None:
    """A schedule by id, even if it was deleted."""
    sql = f"SELECT {COLUMNS} FROM schedules WHERE tenant = $1 AND id = $2{' FOR UPDATE' if lock else ''}"
    return await fetch_one(pool, Schedule, sql, tenant, schedule_id)


async def list_all(
    pool: Pool,
    tenant: str,
    *,
    name: str | None = None,
    ended: bool = False,
    before_id: str | None = None,
    limit: int = 50,
) -> list[Schedule]:
    """The schedules, newest first. Missions that have ended are among them if a name or `ended` asks for them."""
    sql = f"""SELECT {COLUMNS} FROM schedules
               WHERE tenant = $1 AND ($2::text IS NULL OR name = $2) AND ($3::text IS NULL OR id < $3)
                 AND (deleted_at IS NULL OR (status IS NOT NULL AND ($5 OR $2 IS NOT NULL)))
               ORDER BY id DESC LIMIT $4"""
    return await fetch_all(pool, Schedule, sql, tenant, name, before_id, limit, ended)


async def list_of_creator(pool: Pool, tenant: str, creator: str) -> list[Schedule]:
    sql = f"""SELECT {COLUMNS} FROM schedules
               WHERE tenant = $1 AND created_by = $2 AND deleted_at IS NULL ORDER BY id"""
    return await fetch_all(pool, Schedule, sql, tenant, creator)


async def count(pool: Pool, tenant: str) -> int:
    return int(await pool.fetchval("SELECT count(*) FROM schedules WHERE tenant = $1 AND deleted_at IS NULL", tenant))


async def find_unsynced(pool: Pool, limit: int = 200) -> list[Schedule]:
    """Schedules of all tenants whose newest version Temporal does not have. In random order, so that those which it
    does not take cannot hide the others."""
    sql = f"SELECT {COLUMNS} FROM schedules WHERE synced < version ORDER BY random() LIMIT $1"
    rows = await pool.fetch(sql, limit)
    return keep_readable(rows, Schedule, "schedule")


async def mark_synced(pool: Pool, schedule: Schedule) -> None:
    sql = "UPDATE schedules SET synced = greatest(synced, $3) WHERE tenant = $1 AND id = $2"
    await pool.execute(sql, schedule.tenant, schedule.id, schedule.version)


async def note_missing(pool: Pool, known: Sequence[str]) -> int:
    """Mark schedules that Temporal has lost, so that they are created again; `known` are the ids that it has."""
    sql = """UPDATE schedules SET version = version + 1
              WHERE deleted_at IS NULL AND synced > 0 AND NOT id = ANY ($1::text[])"""
    answer = await pool.execute(sql, list(known))
    return int(answer.split()[-1])


async def note_backfill(pool: Pool, schedule: Schedule, start: datetime, end: datetime) -> None:
    sql = """UPDATE schedules
                SET backfilled = backfilled + tstzmultirange(tstzrange($3::timestamptz, $4::timestamptz, '[]'))
              WHERE tenant = $1 AND id = $2"""
    await pool.execute(sql, schedule.tenant, schedule.id, start, end)


async def is_backfilled(pool: Pool, schedule: Schedule, at: datetime) -> bool:
    """Whether a backfill that includes this time was requested."""
    sql = "SELECT backfilled @> $3::timestamptz FROM schedules WHERE tenant = $1 AND id = $2"
    return bool(await pool.fetchval(sql, schedule.tenant, schedule.id, at))


async def count_run(connection: Connection, schedule: Schedule, *, failed: bool) -> None:
    """Count failures in a row, and pause the schedule after too many, with one notice. The caller has locked its
    row."""
    failures = schedule.failures + 1 if failed else 0
    limit = schedule.rules.pause_after_failures
    pauses = failed and limit is not None and failures >= limit and not schedule.paused
    sql = """UPDATE schedules SET failures = $3, paused = paused OR $4, version = version + $4::int,
                                  pause_reason = CASE WHEN $4 THEN $5 ELSE pause_reason END
              WHERE tenant = $1 AND id = $2"""
    await connection.execute(
        sql, schedule.tenant, schedule.id, failures, pauses, f"{format_count(failures, 'run')} in a row failed"
    )
    if pauses:
        paused = SchedulePaused(
            name=schedule.rules.name, schedule_id=schedule.id, reason=f"{failures} failures in a row"
        )
        await notices.give(connection, NewNotice.of(schedule.tenant, schedule.conversation_id, paused))
