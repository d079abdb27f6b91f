"""Missions: their rows, their spending, their one end with its summary, and whether one may run now."""

from datetime import UTC, datetime
from typing import TypeVar

from domain.audit import TENANT
from domain.missions import Hold, HoldKind, MissionStatus, Spent, mission_mark, mission_of
from domain.notifications import MissionEnded, NewNotice
from domain.schedules import Mission
from domain.sessions.new_session import NewSession
from domain.sessions.writes import Acceptance, NewBudget
from store import audit, notices, sessions
from store.database import Connection, Pool, fetch_all, fetch_one, read_row
from store.schedules import COLUMNS
from store.sessions import Accepted, SessionRow, from_columns
from store.workspaces import Manifest

# the sessions of a mission: those of its conversation, and of the separate conversations of single runs
SESSIONS = """SELECT s.* FROM sessions s
                WHERE s.tenant = $1 AND (s.conversation_id = $2 OR s.conversation_id IN (
                      SELECT r.session_id FROM schedule_runs r WHERE r.tenant = $1 AND r.schedule_id = $3))"""


async def get(pool: "Pool | Connection", tenant: str, schedule_id: str, *, lock: bool = False) -> Mission | None:
    """The mission that a schedule is, if it has bounds."""
    sql = f"""SELECT {COLUMNS} FROM schedules
               WHERE tenant = $1 AND id = $2 AND status IS NOT NULL{" FOR UPDATE" if lock else ""}"""
    return await fetch_one(pool, Mission, sql, tenant, schedule_id)


async def sum_spent(
    pool: "Pool | Connection", mission: Mission, since: datetime | None = None, *, within: str | None = None
) -> Spent:
    """The usage since then. `within`: only in this conversation."""
    sql = f"""SELECT coalesce(sum(u.cost_usd), 0) AS cost_usd,
                     coalesce(sum(u.input_tokens + u.output_tokens + u.cache_read_tokens + u.cache_write_tokens), 0)
                         AS tokens,
                     count(*) FILTER (WHERE spawned_by IS NULL) AS runs,
                     count(*) FILTER (WHERE spawned_by IS NULL AND status = 'failed') AS failures
                FROM ({SESSIONS}) s, LATERAL jsonb_populate_record(NULL::usage, s.usage::jsonb) u
               WHERE ($4::timestamptz IS NULL OR s.created_at >= $4) AND ($5::text IS NULL OR s.conversation_id = $5)"""
    row = await pool.fetchrow(sql, mission.tenant, mission.conversation_id, mission.id, since, within)
    assert row is not None
    return Spent(**{**row, "tokens": int(row["tokens"])})


async def resume(pool: Pool, tenant: str, schedule_id: str, *, after: str = "", by: str = "errand") -> list[str]:
    """Resume a mission, if its reason for the pause begins with `after`. Messages that were held back from its
    subagents wake them again: reopen the conversations that are returned. A sweep finds those that nobody
    reopens."""
    async with pool.acquire() as connection, connection.transaction():
        sql = f"""UPDATE schedules SET paused = false, pause_reason = NULL, failures = 0, version = version + 1
                   WHERE tenant = $1 AND id = $2 AND status = 'working' AND paused
                     AND starts_with(coalesce(pause_reason, ''), $3) RETURNING {COLUMNS}"""
        mission = await fetch_one(connection, Mission, sql, tenant, schedule_id, after)
        if mission is None:
            return []
        sql = f"""UPDATE inbox SET wake = true
                   WHERE tenant = $1 AND taken_by IS NULL AND NOT wake AND thread_id <> conversation_id
                     AND conversation_id IN (SELECT conversation_id FROM ({SESSIONS}) s) RETURNING conversation_id"""
        woken = await connection.fetch(sql, tenant, mission.conversation_id, mission.id)
        await audit.append(connection, tenant, TENANT, by, "resume_schedule", subject=mission.rules.name)
    return sorted({one["conversation_id"] for one in woken})


async def end(
    pool: Pool, tenant: str, schedule_id: str, status: MissionStatus, reason: str, by: str = "errand"
) -> Mission | None:
    """End a mission once, with a summary and a notice: it is not due any more, and its conversations accept nothing.
    None if it had already ended."""
    async with pool.acquire() as connection, connection.transaction():
        mission = await get(connection, tenant, schedule_id, lock=True)
        if mission is None or mission.status is not MissionStatus.WORKING:
            return None
        name, summary = mission.rules.name, await _summary(connection, mission, status, reason)
        sql = f"""UPDATE schedules SET status = $3, reason = $4, summary = $5, deleted_at = now(), paused = false,
                                       pause_reason = NULL, version = version + 1
                   WHERE tenant = $1 AND id = $2 RETURNING {COLUMNS}"""
        row = await connection.fetchrow(sql, tenant, schedule_id, status, reason, summary)
        sql = """UPDATE budgets SET deadline = now() WHERE tenant = $1 AND (conversation_id = $2 OR conversation_id IN (
                        SELECT r.session_id FROM schedule_runs r WHERE r.tenant = $1 AND r.schedule_id = $3))"""
        await connection.execute(sql, tenant, mission.conversation_id, schedule_id)
        ended = MissionEnded(name=name, schedule_id=schedule_id, status=status, reason=reason, summary=summary)
        await notices.give(connection, NewNotice.of(tenant, mission.conversation_id, ended))
        await audit.append(connection, tenant, TENANT, by, "end_mission", subject=name)
        return read_row(Mission, row)


async def settle(pool: Pool, tenant: str, schedule_id: str) -> Mission | None:
    """The mission. If one of its end conditions holds, it is ended first."""
    mission = await get(pool, tenant, schedule_id)
    if mission is None or mission.status is not MissionStatus.WORKING:
        return mission
    over = mission.find_end(datetime.now(UTC), await sum_spent(pool, mission), await _last_answer(pool, mission))
    # Only its expiry ends a mission in the middle of a run: otherwise the last run may finish first.
    if over is None or (over[0] is not MissionStatus.EXPIRED and await find_unfinished(pool, mission)):
        return mission
    return await end(pool, tenant, schedule_id, *over) or await get(pool, tenant, schedule_id)


async def settle_of_conversation(pool: Pool, tenant: str, conversation_id: str) -> Mission | None:
    """The mission of a conversation, up to date with everything that has happened."""
    mission = await of_conversation(pool, tenant, conversation_id)
    return mission and await settle(pool, tenant, mission.id)


async def find_unfinished(pool: Pool, mission: Mission) -> list[SessionRow]:
    """Its runs that have not ended, including those that events started."""
    sql = f"""SELECT * FROM ({SESSIONS}) s
               WHERE spawned_by IS NULL AND status NOT IN ('completed', 'failed', 'cancelled')"""
    return await fetch_all(pool, from_columns, sql, mission.tenant, mission.conversation_id, mission.id)


async def find_left_running(pool: Pool) -> list[SessionRow]:
    """Runs of cancelled missions, of all tenants, that nobody has stopped: the API died after it wrote the end."""
    sql = """SELECT s.* FROM sessions s
              WHERE s.status IN ('submitted', 'working', 'input_required') AND s.spawned_by IS NULL
                AND s.cancel_requested IS NULL AND EXISTS (
                    SELECT 1 FROM schedules m WHERE m.tenant = s.tenant AND m.status = 'cancelled'
                       AND (m.conversation_id = s.conversation_id OR m.id IN (
                            SELECT r.schedule_id FROM schedule_runs r
                             WHERE r.tenant = s.tenant AND r.session_id = s.conversation_id)))"""
    return await fetch_all(pool, from_columns, sql)


async def of_conversation(
    pool: "Pool | Connection", tenant: str, conversation_id: str, *, lock: bool = False
) -> Mission | None:
    """The mission of a conversation that its runs share, or of one that a single run has."""
    sql = f"""SELECT {COLUMNS} FROM schedules WHERE tenant = $1 AND status IS NOT NULL AND id IN (
                     SELECT id FROM schedules WHERE tenant = $1 AND conversation_id = $2 AND status IS NOT NULL
                     UNION ALL
                     SELECT schedule_id FROM schedule_runs WHERE tenant = $1 AND session_id = $2
                     ){" FOR UPDATE" if lock else ""}"""
    return await fetch_one(pool, Mission, sql, tenant, conversation_id)


async def list_working(pool: Pool) -> list[tuple[str, str]]:
    """The missions of all tenants."""
    rows = await pool.fetch("SELECT tenant, id FROM schedules WHERE status = 'working'")
    return [(row["tenant"], row["id"]) for row in rows]


async def find_open_requests(pool: Pool, mission: Mission) -> list[str]:
    """The open input requests of its runs, without those that wait for an event."""
    sql = f"""SELECT r.id FROM input_requests r JOIN ({SESSIONS}) s ON s.tenant = r.tenant AND s.id = r.session_id
               WHERE r.status = 'open' AND r.event_key IS NULL ORDER BY r.id"""
    return [row["id"] for row in await pool.fetch(sql, mission.tenant, mission.conversation_id, mission.id)]


async def _last_answer(pool: "Pool | Connection", mission: Mission) -> str | None:
    sql = f"""SELECT output FROM ({SESSIONS}) s WHERE spawned_by IS NULL AND status = 'completed'
               ORDER BY ended_at DESC LIMIT 1"""
    answer: str | None = await pool.fetchval(sql, mission.tenant, mission.conversation_id, mission.id)
    return answer


async def _summary(connection: Connection, mission: Mission, status: MissionStatus, reason: str) -> str:
    total = await sum_spent(connection, mission)
    sql = "SELECT status, count(*) AS n FROM schedule_runs WHERE tenant = $1 AND schedule_id = $2 GROUP BY status"
    ticks = await connection.fetch(sql, mission.tenant, mission.id)
    counted = ", ".join(f"{row['n']} {row['status']}" for row in sorted(ticks, key=lambda row: str(row["status"])))
    answer = await _last_answer(connection, mission)
    lines = [
        f"{mission.rules.name} ended ({status}): {reason}.",
        f"Ticks: {counted or 'none'}. Runs: {total.runs}, of which {total.failures} failed. "
        f"Used: {total.tokens} tokens, {total.cost_usd:.4f} USD.",
    ]
    return "\n".join([*lines, f"Last answer: {answer[:2_000]}"] if answer else lines)


# Whether a mission may run now: one answer for its ticks, events, messages of agents, and turns of callers.


Session = TypeVar("Session", bound=NewSession)


async def admit(pool: "Pool | Connection", mission: Mission, conversation_id: str | None) -> Hold | NewBudget:
    """Why no run may begin now, or the limits of the next one. None: the run gets a new conversation."""
    now = datetime.now(UTC)
    today = await sum_spent(pool, mission, mission.day_start(now))
    total = await sum_spent(pool, mission)
    if (hold := mission.find_hold(now, today, total)) is not None:
        return hold
    before = await sum_spent(pool, mission, within=conversation_id) if conversation_id else Spent()
    return mission.run_budget(today, total, before)


def mark_session(session: Session, mission: Mission) -> Session:
    """The session as a run of the mission, with the mission's risks."""
    if mission_of(session.rules) == mission.id:
        return session
    return session.model_copy(update={"rules": [*session.rules, mission_mark(mission.id)]})


async def accept_turn(pool: Pool, acceptance: Acceptance, files: Manifest) -> Accepted | Hold:
    """Accept a turn in an existing conversation. In a mission's conversation it is a run of the mission, or is held
    back."""
    ref = acceptance.session.ref
    async with pool.acquire() as connection, connection.transaction():
        mission = await of_conversation(connection, ref.tenant, ref.conversation_id, lock=True)
        if mission is not None:
            admitted = await admit(connection, mission, ref.conversation_id)
            if isinstance(admitted, Hold):
                return admitted
            run = {"session": mark_session(acceptance.session, mission), "budget": admitted.within(acceptance.budget)}
            acceptance = acceptance.model_copy(update=run)
        accepted = await sessions.accept(connection, acceptance)
        if files and accepted.session is not None:
            await sessions.add_queued_files(connection, accepted.session, files)
        return accepted


async def find_wake_hold(pool: "Pool | Connection", tenant: str, conversation_id: str, thread_id: str) -> Hold | None:
    """Why a message from outside does not wake this thread of a mission; a running session reads it anyway."""
    mission = await of_conversation(pool, tenant, conversation_id)
    if mission is None or await pool.fetchval(
        "SELECT 1 FROM sessions WHERE tenant = $1 AND thread_id = $2 AND live", tenant, thread_id
    ):
        return None
    admitted = await admit(pool, mission, None)
    return admitted if isinstance(admitted, Hold) else None


async def admit_wake(
    pool: Pool, tenant: str, conversation_id: str, messages: list[str], *, new_run: bool
) -> Hold | NewBudget | None:
    """The limits of a session that these messages begin, or why they begin none: their mission may not run now, and its
    next run reads them. `new_run`: they wake the main thread, so the session counts as a run, whatever sent them; an
    agent of a paused mission that is woken by its own background agents would otherwise run without bound. Messages to
    a subagent belong to a run that has begun: they wait only while the mission is paused, until it is resumed. None if
    nothing bounds the session."""
    if await of_conversation(pool, tenant, conversation_id) is None:
        return None
    async with pool.acquire() as connection, connection.transaction():
        # Locked: a mission that is resumed in between would not find the messages that are held back here.
        mission = await of_conversation(connection, tenant, conversation_id, lock=True)
        if mission is None:
            return None
        admitted = await admit(connection, mission, conversation_id)
        if isinstance(admitted, NewBudget):
            return admitted
        if not new_run and admitted.kind is HoldKind.SPENT:
            return None
        held = "UPDATE inbox SET wake = false WHERE tenant = $1 AND id = ANY ($2::text[]) AND taken_by IS NULL"
        await connection.execute(held, tenant, messages)
        return admitted
