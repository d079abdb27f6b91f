"""Whether a mission may run now: one answer for its ticks, events, messages of agents, and turns of callers."""

from datetime import UTC, datetime
from typing import TypeVar

from domain.missions import Hold, HoldKind, Mission, Spent, mission_mark, mission_of
from domain.sessions.new_session import NewSession
from domain.sessions.writes import Acceptance, NewBudget
from store import missions, new_sessions, queued_files
from store.database import Connection, Pool
from store.new_sessions import Accepted
from store.workspaces import Manifest

Session = TypeVar("Session", bound=NewSession)


async def admit(pool: "Pool | Connection", mission: Mission, conversation_id: str | None) -> Hold | NewBudget:
    """Why no run may begin now, or the limits of the next one. None: the run gets a new conversation."""
    now = datetime.now(UTC)
    today = await missions.spent(pool, mission, mission.day_start(now))
    total = await missions.spent(pool, mission)
    if (hold := mission.hold(now, today, total)) is not None:
        return hold
    before = await missions.spent(pool, mission, within=conversation_id) if conversation_id else Spent()
    return mission.run_budget(today, total, before)


def marked(session: Session, mission: Mission) -> Session:
    """The session as a run of the mission, with the mission's risks."""
    if mission_of(session.rules) == mission.id:
        return session
    return session.model_copy(update={"rules": [*session.rules, mission_mark(mission.id)]})


async def accept_turn(pool: Pool, acceptance: Acceptance, files: Manifest) -> Accepted | Hold:
    """Accept a turn in an existing conversation. In a mission's conversation it is a run of the mission, or is held
    back."""
    ref = acceptance.session.ref
    async with pool.acquire() as connection, connection.transaction():
        mission = await missions.of_conversation(connection, ref.tenant, ref.conversation_id, lock=True)
        if mission is not None:
            admitted = await admit(connection, mission, ref.conversation_id)
            if isinstance(admitted, Hold):
                return admitted
            run = {"session": marked(acceptance.session, mission), "budget": admitted.within(acceptance.budget)}
            acceptance = acceptance.model_copy(update=run)
        accepted = await new_sessions.accept(connection, acceptance)
        if files and accepted.session is not None:
            await queued_files.add(connection, accepted.session, files)
        return accepted


async def wake_hold(pool: "Pool | Connection", tenant: str, conversation_id: str, thread_id: str) -> Hold | None:
    """Why a message from outside does not wake this thread of a mission; a running session reads it anyway."""
    mission = await missions.of_conversation(pool, tenant, conversation_id)
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
    if await missions.of_conversation(pool, tenant, conversation_id) is None:
        return None
    async with pool.acquire() as connection, connection.transaction():
        # Locked: a mission that is resumed in between would not find the messages that are held back here.
        mission = await missions.of_conversation(connection, tenant, conversation_id, lock=True)
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
