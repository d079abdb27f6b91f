"""Schedules that an agent makes for itself, in its own conversation and as many as its definition allows."""

from domain.amounts import format_count
from domain.errors import ForModel, Unavailable
from domain.schedules import Schedule, ScheduleRules, time_problem
from domain.sessions.new_session import NewSession, Trigger
from domain.sessions.session import SessionRef
from store import schedules, sessions
from store.agents import load_view
from store.database import Pool
from store.sessions import SessionRow
from workflows.schedules import ScheduleClient


class OwnSchedules:
    def __init__(self, pool: Pool, client: ScheduleClient) -> None:
        self._pool = pool
        self._client = client

    async def put(self, ref: SessionRef, rules: ScheduleRules, prompt: str) -> str:
        """Create a schedule, or replace the agent's own one of this name; returns its next times."""
        session = await self._owner(ref)
        if rules.at is not None and (problem := time_problem(rules.at)) is not None:
            raise ForModel(f"Nothing can be due at that time: it {problem}.")
        rules = rules.model_copy(
            update={"name": _stored_name(session, rules.name), "conversation_id": ref.conversation_id}
        )
        run = NewSession.continuing(session).model_copy(update={"trigger": Trigger.SCHEDULE})
        own = {one.rules.name: one for one in await self._list_own(session)}
        if (known := own.get(rules.name)) is not None:
            made = await schedules.replace(self._pool, ref.tenant, known.id, rules, run, prompt, _creator(session))
        else:
            most = (await load_view(self._pool, session.agent_ref)).schedules
            if len(own) >= most:
                raise ForModel(f"You may have {format_count(most, 'schedule')}, and have {len(own)}.")
            made = await schedules.create(self._pool, ref.tenant, rules, run, prompt, {}, _creator(session))
        if made is None:
            raise ForModel("That name is taken.")
        await self._sync(made)
        times = await self._client.next_times(made.id, 3)
        return ", ".join(time.isoformat() for time in times or []) or "not known yet"

    async def list_lines(self, ref: SessionRef) -> list[str]:
        session = await self._owner(ref)
        return [_line(session, one) for one in await self._list_own(session)]

    async def set_paused(self, ref: SessionRef, name: str, paused: bool) -> None:
        found = await self._find(ref, name)
        made = await schedules.set_paused(
            self._pool, ref.tenant, found.id, paused, found.created_by, "paused by its agent"
        )
        await self._sync(made or found)

    async def delete(self, ref: SessionRef, name: str) -> None:
        found = await self._find(ref, name)
        gone = await schedules.delete(self._pool, ref.tenant, found.id, found.created_by)
        await self._sync(gone or found)

    async def _owner(self, ref: SessionRef) -> SessionRow:
        session = await sessions.load(self._pool, ref)
        if session.thread_id != session.conversation_id:
            raise ForModel("Only the agent of a conversation has schedules, not its subagents.")
        if not (await load_view(self._pool, session.agent_ref)).schedules:
            raise ForModel("Your definition allows you no schedules.")
        return session

    async def _list_own(self, session: SessionRow) -> list[Schedule]:
        return await schedules.list_of_creator(self._pool, session.tenant, _creator(session))

    async def _find(self, ref: SessionRef, name: str) -> Schedule:
        session = await self._owner(ref)
        for one in await self._list_own(session):
            if one.rules.name == _stored_name(session, name):
                return one
        raise ForModel(f"You have no schedule {name!r}.")

    async def _sync(self, schedule: Schedule) -> None:
        """Update Temporal from the row; if it is unreachable, a sweep does that."""
        try:
            await self._client.put(schedule)
        except Unavailable:
            return
        await schedules.mark_synced(self._pool, schedule)


def _creator(session: SessionRow) -> str:
    return f"agent {session.conversation_id}"


def _stored_name(session: SessionRow, name: str) -> str:
    """The stored name: names are unique in a tenant, but an agent chooses them only within its conversation."""
    return f"{session.conversation_id}.{name}"


def _line(session: SessionRow, one: Schedule) -> str:
    rules = one.rules
    when = f"{rules.cron} {rules.timezone}" if rules.cron else f"every {(rules.every or 0) // 1000} s"
    when = f"once at {rules.at.isoformat()}" if rules.at else when
    state = f" (paused: {one.pause_reason})" if one.paused else ""
    return f"- {rules.name.removeprefix(_stored_name(session, ''))}: {when}{state}: {one.prompt[:200]}"
