"""The short form of the fault bench: callers work while faults happen. The long form is `python -m tests.faults`."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import network, temporal_faults, workload
from tests.faults.matrix import ANY, KILLS, ROWS, SHORT, Plan, Size, prepare, run
from tests.faults.moments import MOMENTS
from tests.support.stack import Stack

DAEMONS = "channels, schedules, triggers, missions"
DAMAGE = Plan([temporal_faults.delete_workflow, temporal_faults.reset_workflow], workload.FLAT, forgets=True)
SHARED = Plan(KILLS, (workload.workspaces, *workload.FLAT), tenants=True, workers=True)
MOMENTARY = Plan([], (workload.messages, workload.effects), moments=tuple(MOMENTS.values()))


async def unharmed(stack: Stack, folder: Path, name: str, plan: Plan, tasks: int, size: Size = SHORT) -> None:
    await prepare(stack)
    row = await run(stack, name, 2, size, folder, plan)
    assert row.violations.named == []
    assert row.tasks >= tasks and row.hits >= size.faults, "nothing was tested"


@pytest.mark.proves("S1-05", "F-09")
async def test_faults_lose_nothing_and_do_nothing_twice(stack: Stack, tmp_path: Path) -> None:
    await unharmed(stack, tmp_path, ANY, ROWS[ANY], 7)


@pytest.mark.parametrize(
    ("name", "plan", "faults"),
    [
        ("workflows deleted and reset", DAMAGE, 2),
        ("two workers and two tenants", SHARED, 1),
        *((name, ROWS[name], 1) for name in (DAEMONS, "outages of a vendor", "handoff")),
    ],
)
async def test_work_survives_damage_and_other_workers_and_tenants(
    stack: Stack, tmp_path: Path, name: str, plan: Plan, faults: int
) -> None:
    await unharmed(stack, tmp_path, name, plan, 3, replace(SHORT, faults=faults))


async def test_kills_in_short_moments_lose_nothing_and_do_nothing_twice(stack: Stack, tmp_path: Path) -> None:
    await unharmed(stack, tmp_path, "short moments", MOMENTARY, 6, replace(SHORT, faults=len(MOMENTS)))


async def test_network_faults_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    """Connections to PostgreSQL, Temporal and the model are cut, refused, stopped and slowed down."""
    async with network.proxied() as (stack, proxies):
        assert all(proxy.connections for name, proxy in proxies.items() if name != "model"), "they are not in the way"
        plan = Plan([network.faults(proxies)["network to all"]])
        await unharmed(stack, tmp_path, "network to all", plan, 7)
