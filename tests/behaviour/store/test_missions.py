"""What counts for a mission: all of its runs, with their subagents; what its end and its resumption reach."""

from datetime import UTC, datetime, timedelta

import pytest

from domain.ids import new_id
from domain.missions import MissionRules, Spent
from domain.schedules import ContextMode, Mission, Schedule, ScheduleRules
from domain.sessions.session import Usage
from domain.sessions.writes import Acceptance
from store import missions, schedule_runs, schedules, sessions
from store.database import Pool
from store.sessions import SessionRow
from tests.behaviour.store.conftest import NEW, new_session
from tests.behaviour.store.test_schedules import tick
from tests.behaviour.store.test_trees import child_of

CONTEXTS = pytest.mark.parametrize("context", [ContextMode.CONTINUE, ContextMode.ISOLATED])


async def create(pool: Pool, context: ContextMode = ContextMode.CONTINUE) -> tuple[Schedule, Mission]:
    bounds = MissionRules.model_validate({"total": {"runs": 100}})
    given = ScheduleRules(name=f"m{new_id()}", every=3_600_000, context=context, mission=bounds)
    schedule = await schedules.create(pool, "default", given, NEW, "look", {}, "ann")
    assert schedule is not None
    mission = await missions.get(pool, "default", schedule.id)
    assert mission is not None
    return schedule, mission


async def run(pool: Pool, schedule: Schedule, mission: Mission, hour: int = 0) -> SessionRow:
    fired = await schedule_runs.fire(pool, tick(schedule, hour), "look", mission)
    assert fired is not None and fired[1] is not None, fired
    return fired[1]


async def child(pool: Pool, parent: SessionRow) -> SessionRow:
    return await accepted(pool, child_of(parent.ref))


async def accepted(pool: Pool, acceptance: Acceptance) -> SessionRow:
    found = await sessions.accept(pool, acceptance)
    assert found.session is not None
    return found.session


async def use(pool: Pool, session: SessionRow, usage: Usage, status: str = "completed") -> None:
    await pool.execute(
        "UPDATE sessions SET usage = $2, status = $3 WHERE id = $1", session.id, usage.model_dump_json(), status
    )


@CONTEXTS
async def test_all_runs_and_their_subagents_count_with_every_kind_of_token(pool: Pool, context: ContextMode) -> None:
    schedule, mission = await create(pool, context)
    first = await run(pool, schedule, mission)
    helper, other = await child(pool, first), await accepted(pool, Acceptance(session=new_session()))
    each = Usage(input_tokens=1, output_tokens=20, cache_read_tokens=300, cache_write_tokens=4_000, cost_usd=0.5)
    await use(pool, first, each, "failed")
    await use(pool, helper, each, "failed")
    await use(pool, other, each, "failed")
    found = await missions.sum_spent(pool, mission)
    assert found == Spent(cost_usd=1.0, tokens=8_642, runs=1, failures=1)  # a subagent is no run
    await pool.execute("UPDATE sessions SET status = 'cancelled' WHERE id = $1", first.id)
    assert (await missions.sum_spent(pool, mission)).failures == 0
    await pool.execute("UPDATE sessions SET created_at = created_at - interval '1 day' WHERE id = $1", first.id)
    today = await missions.sum_spent(pool, mission, datetime.now(UTC) - timedelta(hours=1))
    assert today == Spent(cost_usd=0.5, tokens=4_321)
    await pool.execute("UPDATE sessions SET status = 'completed', live = false WHERE id = $1", first.id)
    second = await run(pool, schedule, mission, 1)
    await use(pool, second, each)
    assert (await missions.sum_spent(pool, mission)).runs == 2
    within = await missions.sum_spent(pool, mission, within=second.conversation_id)
    assert within.runs == (2 if context is ContextMode.CONTINUE else 1)
