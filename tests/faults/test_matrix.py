"""The short form of the fault bench: callers work while faults happen. The long form is `python -m tests.faults`."""

from pathlib import Path

import pytest

from tests.faults import network
from tests.faults.matrix import ANY, SHORT, Plan, prepare, run
from tests.faults.moments import MOMENTS
from tests.support.stack import Stack

DAEMONS = "channels, schedules, triggers, missions"


@pytest.mark.parametrize(("name", "seed"), [("nothing", 1), (ANY, 2)])
@pytest.mark.proves("S1-05", "F-09")
async def test_faults_lose_nothing_and_do_nothing_twice(stack: Stack, tmp_path: Path, name: str, seed: int) -> None:
    await prepare(stack)
    row = await run(stack, name, seed, SHORT, tmp_path)
    assert row.violations.named == []
    assert row.tasks >= 7 and (row.hits > 0) == (name != "nothing"), "nothing was tested"


@pytest.mark.parametrize("name", ["workflows deleted", "workflows reset", "two workers", "two tenants", DAEMONS])
async def test_work_survives_damage_and_other_workers_and_tenants(stack: Stack, tmp_path: Path, name: str) -> None:
    await prepare(stack)
    row = await run(stack, name, 3, SHORT, tmp_path)
    assert row.violations.named == []
    assert row.tasks >= 3 and row.hits > 0, "nothing was tested"


@pytest.mark.parametrize("name", MOMENTS)
async def test_kills_in_short_moments_lose_nothing_and_do_nothing_twice(
    stack: Stack, tmp_path: Path, name: str
) -> None:
    await prepare(stack)
    row = await run(stack, name, 2, SHORT, tmp_path)
    assert row.violations.named == []
    assert row.tasks >= 4 and row.hits > 0, "nothing was tested"


async def test_network_faults_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    """Connections to PostgreSQL, Temporal and the model are cut, refused, stopped and slowed down."""
    async with network.proxied() as (stack, proxies):
        await prepare(stack)
        assert all(proxy.connections for name, proxy in proxies.items() if name != "model"), "they are not in the way"
        plan = Plan([network.faults(proxies)["network to all"]])
        row = await run(stack, "network to all", 4, SHORT, tmp_path, plan)
    assert row.violations.named == []
    assert row.tasks >= 7 and row.hits > 0, "nothing was tested"
