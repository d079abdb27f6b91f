"""What counts for a mission: all of its runs, with their subagents and every kind of token."""

from datetime import UTC, datetime, timedelta

from domain.ids import new_id
from domain.missions import MissionRules, Spent
from domain.schedules import ScheduleRules, TickCall
from domain.sessions.session import Usage
from domain.sessions.writes import Acceptance
from store import missions, schedule_runs, schedules, sessions
from store.database import Pool
from tests.behaviour.store.conftest import NEW, new_session
from tests.behaviour.store.test_trees import child_of


async def test_all_runs_and_their_subagents_count_with_every_kind_of_token(pool: Pool) -> None:
    bounds = MissionRules.model_validate({"total": {"runs": 100}})
    rules = ScheduleRules(name=f"m{new_id()}", every=3_600_000, mission=bounds)
    schedule = await schedules.create(pool, "default", rules, NEW, "look", {}, "ann")
    assert schedule is not None
    mission = await missions.get(pool, "default", schedule.id)
    assert mission is not None
    tick = TickCall(tenant="default", schedule_id=schedule.id, at=datetime(2026, 1, 1, tzinfo=UTC))
    fired = await schedule_runs.fire(pool, tick, "look", mission)
    assert fired is not None and fired[1] is not None
    run = fired[1]
    others = [child_of(run.ref), Acceptance(session=new_session())]  # its subagent, and one of nobody
    await sessions.accept_all(pool, others)
    each = Usage(input_tokens=1, output_tokens=20, cache_read_tokens=300, cache_write_tokens=4_000, cost_usd=0.5)
    used = "UPDATE sessions SET usage = $2, status = 'failed' WHERE id = ANY($1::text[])"
    await pool.execute(used, [run.id, *(one.session.id for one in others)], each.model_dump_json())
    found = await missions.sum_spent(pool, mission)
    assert found == Spent(cost_usd=1.0, tokens=8_642, runs=1, failures=1)  # a subagent is no run
    await pool.execute("UPDATE sessions SET created_at = created_at - interval '1 day' WHERE id = $1", run.id)
    today = await missions.sum_spent(pool, mission, datetime.now(UTC) - timedelta(hours=1))
    assert today == Spent(cost_usd=0.5, tokens=4_321)
