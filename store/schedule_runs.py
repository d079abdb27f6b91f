"""The records of schedules' ticks. Each tick is decided in one transaction under its schedule's lock, so only once."""

import logging
from datetime import datetime
from typing import Literal

from errand import models
from pydantic import ValidationError

from domain import wire
from domain.channels import Address, ArrivingMessage
from domain.ids import new_id
from domain.missions import Hold
from domain.schedules import ContextMode, Mission, Overlap, RunStatus, Schedule, ScheduleRun, TickCall, tick_key
from domain.sessions.new_session import NewSession, Trigger
from domain.sessions.session import SessionRef
from domain.sessions.writes import NewBudget, ThreadMessage
from domain.wire import SessionRefusal
from store import addresses, conversations, missions, schedules, sessions, workspaces
from store.addresses import Arrival
from store.database import Connection, Pool, fetch_all, fetch_one
from store.sessions import SessionRow, from_columns

log = logging.getLogger("errand.store")

_COLUMNS = "scheduled_at, status, reason, session_id, manual"
_OVER = "('completed', 'failed', 'cancelled')"
_TITLES: dict[str, str] = {
    SessionRefusal.TERMINATED: "the conversation was terminated",
    SessionRefusal.UNKNOWN: "the conversation does not exist",
}


async def get(pool: "Pool | Connection", tick: TickCall) -> ScheduleRun | None:
    sql = f"SELECT {_COLUMNS} FROM schedule_runs WHERE tenant = $1 AND schedule_id = $2 AND scheduled_at = $3"
    return await fetch_one(pool, ScheduleRun, sql, tick.tenant, tick.schedule_id, tick.at)


async def record(pool: Pool, tick: TickCall, status: RunStatus, reason: str) -> ScheduleRun | None:
    """Record a tick that does not become a session; an earlier record stays. None if the schedule was deleted."""
    async with pool.acquire() as connection, connection.transaction():
        schedule = await schedules.get(connection, tick.tenant, tick.schedule_id, lock=True)
        if schedule is None or schedule.deleted_at is not None:
            return None
        if (known := await get(connection, tick)) is not None:
            return known
        return await _write(connection, schedule, tick, status, reason)


async def fire(
    pool: Pool, tick: TickCall, text: str, mission: Mission | None = None, session: NewSession | None = None
) -> tuple[ScheduleRun, SessionRow | None] | None:
    """Decide on a tick: a new session, a message to the running one, or nothing because one is running, or because
    its mission may not run now. The same tick is decided once. `session`: the schedule's, with the values that its
    variables have now. None: the schedule is gone."""
    async with pool.acquire() as connection, connection.transaction():
        # before the schedule, as its end does: two that begin together do not both get the last run
        mission = await missions.get(connection, tick.tenant, mission.id, lock=True) if mission else None
        schedule = await schedules.get(connection, tick.tenant, tick.schedule_id, lock=True)
        if schedule is None or schedule.deleted_at is not None:
            return None
        if (known := await get(connection, tick)) is not None:
            return known, await sessions.get(connection, tick.tenant, known.session_id) if known.session_id else None
        budget = None
        if mission is not None:
            shared = schedule.conversation_id if schedule.rules.context is ContextMode.CONTINUE else None
            admitted = await missions.admit(connection, mission, shared)
            if isinstance(admitted, Hold):
                return await _write(connection, schedule, tick, RunStatus.SKIPPED, admitted.text), None
            budget = admitted
            session = missions.mark_session(session or schedule.session, mission)
        if session is not None:
            schedule = schedule.model_copy(update={"session": session})
        if schedule.rules.overlap is Overlap.STEER:
            live = await sessions.live_of_thread(connection, tick.tenant, schedule.conversation_id)
            if live is not None:
                await _add_message(connection, schedule, tick, text)
                return await _write(connection, schedule, tick, RunStatus.STEERED, session_id=live.id), live
        if schedule.rules.overlap is Overlap.SKIP and await find_unfinished(connection, tick.tenant, schedule.id):
            return await _write(connection, schedule, tick, RunStatus.SKIPPED, "the run before it is not over"), None
        arrival = await _accept(connection, schedule, tick, text, budget)
        if arrival.session is not None:
            run = await _write(connection, schedule, tick, RunStatus.FIRED, session_id=arrival.session.id)
            return run, arrival.session
        assert arrival.refused is not None
        if arrival.refused.busy:
            return await _write(connection, schedule, tick, RunStatus.SKIPPED, "the conversation is busy"), None
        why = arrival.refused.refused or wire.REFUSED
        return await _write(connection, schedule, tick, RunStatus.FAILED, _TITLES.get(why, why)), None


async def unsteer(pool: Pool, schedule: Schedule, tick: TickCall) -> bool:
    """Withdraw the message of a tick whose session had ended, so that the tick is decided again. False if a session has
    read the message after all."""
    async with pool.acquire() as connection, connection.transaction():
        await schedules.get(connection, tick.tenant, tick.schedule_id, lock=True)
        sql = "DELETE FROM inbox WHERE tenant = $1 AND id = $2 AND taken_by IS NULL RETURNING 1"
        gone = await connection.fetchval(sql, tick.tenant, schedule.message_id(tick.at))
        if gone:
            sql = "DELETE FROM schedule_runs WHERE tenant = $1 AND schedule_id = $2 AND scheduled_at = $3"
            await connection.execute(sql, tick.tenant, tick.schedule_id, tick.at)
        return gone is not None


async def find_unfinished(pool: "Pool | Connection", tenant: str, schedule_id: str) -> list[SessionRow]:
    """The sessions of earlier runs that have not ended."""
    sql = f"""SELECT s.* FROM schedule_runs r JOIN sessions s ON s.tenant = r.tenant AND s.id = r.session_id
               WHERE r.tenant = $1 AND r.schedule_id = $2 AND NOT r.settled AND s.status NOT IN {_OVER}"""
    return await fetch_all(pool, from_columns, sql, tenant, schedule_id)


async def settle(pool: Pool, limit: int = 500) -> int:
    """Count the ends of runs' sessions; schedules that fail too often in a row are paused."""
    sql = f"""SELECT r.tenant, r.schedule_id, r.scheduled_at, s.status
                FROM schedule_runs r JOIN sessions s ON s.tenant = r.tenant AND s.id = r.session_id
               WHERE NOT r.settled AND s.status IN {_OVER} ORDER BY s.ended_at LIMIT $1"""
    rows = await pool.fetch(sql, limit)
    for row in rows:
        async with pool.acquire() as connection, connection.transaction():
            try:
                schedule = await schedules.get(connection, row["tenant"], row["schedule_id"], lock=True)
            except ValidationError:  # one that this version cannot read stops no other, and has nothing to count
                log.exception("the schedule %s cannot be read", row["schedule_id"])
                schedule = None
            sql = """UPDATE schedule_runs SET settled = true
                      WHERE tenant = $1 AND schedule_id = $2 AND scheduled_at = $3 AND NOT settled RETURNING 1"""
            settled = await connection.fetchval(sql, row["tenant"], row["schedule_id"], row["scheduled_at"])
            # a cancelled run counts neither as success nor as failure
            if settled and schedule is not None and row["status"] != "cancelled":
                await schedules.count_run(connection, schedule, failed=row["status"] == "failed")
    return len(rows)


async def list_all(
    pool: Pool, tenant: str, schedule_id: str, *, before: datetime | None = None, limit: int = 50
) -> list[models.ScheduleRun]:
    """The runs with the states of their sessions, latest scheduled time first."""
    sql = """SELECT r.scheduled_at, r.status, r.reason, r.session_id, r.manual, s.status AS task_status
               FROM schedule_runs r LEFT JOIN sessions s ON s.tenant = r.tenant AND s.id = r.session_id
              WHERE r.tenant = $1 AND r.schedule_id = $2 AND ($3::timestamptz IS NULL OR r.scheduled_at < $3)
              ORDER BY r.scheduled_at DESC LIMIT $4"""
    return await fetch_all(pool, models.ScheduleRun, sql, tenant, schedule_id, before, limit)


async def counts(pool: Pool, tenant: str, schedule_id: str) -> dict[str, int]:
    sql = "SELECT status, count(*) AS n FROM schedule_runs WHERE tenant = $1 AND schedule_id = $2 GROUP BY status"
    return {row["status"]: row["n"] for row in await pool.fetch(sql, tenant, schedule_id)}


async def _accept(
    connection: Connection, schedule: Schedule, tick: TickCall, text: str, budget: NewBudget | None
) -> Arrival:
    config = {**schedule.session.spec, "schedule": {"id": schedule.id, "silent_reply": schedule.rules.silent_reply}}
    session = schedule.session.model_copy(update={"spec": config, "trigger": Trigger.SCHEDULE})
    busy: Literal["reject", "queue"] = "reject" if schedule.rules.overlap is Overlap.SKIP else "queue"
    message = ArrivingMessage(
        key=f"{schedule.id}:{tick_key(tick.at)}",
        text=text,
        author=f"schedule {schedule.rules.name}",
        session=session,
        if_busy=busy,
        budget=budget,
    )
    context = schedule.rules.context
    source = await _source(connection, schedule) if context is ContextMode.FORK else None
    own = schedule.rules.conversation_id is None  # later runs fork its first one; a named conversation is not entered
    if context is ContextMode.CONTINUE or (context is ContextMode.FORK and source is None and own):
        return await addresses.accept_in(connection, schedule.tenant, Address.schedule(schedule.id), message)
    return await _accept_apart(connection, schedule, message, source)


async def _accept_apart(
    connection: Connection, schedule: Schedule, message: ArrivingMessage, source: SessionRow | None
) -> Arrival:
    """Open a conversation for one run: a fork of `source`, or an isolated one. Files come from the schedule's
    workspace."""
    session_id = new_id()
    workspace_id = source.workspace_id if source else schedule.conversation_id
    _, files = await workspaces.get(connection, schedule.tenant, workspace_id)
    if source is not None:
        history = {"parent_session_id": source.id, "base_head": source.head}
        message = message.model_copy(update={"session": message.session.model_copy(update=history)})
    ref = SessionRef(tenant=schedule.tenant, session_id=session_id, conversation_id=session_id)
    acceptance = addresses.acceptance_of(ref, message.model_copy(update={"files": files}))
    accepted = await sessions.accept(connection, acceptance)
    return Arrival(accepted.session) if accepted.session else Arrival(refused=accepted)


async def _write(
    connection: Connection,
    schedule: Schedule,
    tick: TickCall,
    status: RunStatus,
    reason: str = "",
    session_id: str | None = None,
) -> ScheduleRun:
    row = await connection.fetchrow(
        f"""INSERT INTO schedule_runs (tenant, schedule_id, scheduled_at, status, reason, session_id, manual, settled)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING {_COLUMNS}""",
        tick.tenant,
        tick.schedule_id,
        tick.at,
        status,
        reason,
        session_id,
        tick.manual,
        status is not RunStatus.FIRED,
    )
    assert row is not None
    if status is RunStatus.FAILED:
        await schedules.count_run(connection, schedule, failed=True)
    return ScheduleRun(**row)


async def _source(connection: Connection, schedule: Schedule) -> SessionRow | None:
    """The newest session of the conversation that has an answer; after a reset, only of those since then."""
    sql = """SELECT * FROM sessions WHERE tenant = $1 AND thread_id = $2 AND committed AND generation = (
                 SELECT generation FROM conversations WHERE tenant = $1 AND id = $2) ORDER BY ended_at DESC LIMIT 1"""
    return await fetch_one(connection, from_columns, sql, schedule.tenant, schedule.conversation_id)


async def _add_message(connection: Connection, schedule: Schedule, tick: TickCall, text: str) -> None:
    """Send a message to the running session; its conversation is signalled after the transaction, or by a sweep."""
    await conversations.add_message_in(
        connection,
        schedule.tenant,
        ThreadMessage(
            id=schedule.message_id(tick.at),
            conversation_id=schedule.conversation_id,
            thread_id=schedule.conversation_id,
            text=text,
            author=f"schedule {schedule.rules.name}",
            unsignalled=True,
        ),
    )
