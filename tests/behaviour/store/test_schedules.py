"""Which schedules a worker passes on to Temporal."""

from domain.ids import new_id
from domain.schedules import ScheduleRules
from store import schedules
from store.database import Pool
from tests.behaviour.store.conftest import NEW


async def test_schedules_that_temporal_does_not_take_hide_no_others(pool: Pool) -> None:
    await pool.execute("UPDATE schedules SET synced = version")
    made = [
        await schedules.create(
            pool, "default", ScheduleRules(name=f"s{new_id()}", every=60_000), NEW, "look", {}, "ann"
        )
        for _ in range(2)
    ]
    found = {one.id for _ in range(100) for one in await schedules.find_unsynced(pool, limit=1)}
    assert found == {one.id for one in made if one is not None}
