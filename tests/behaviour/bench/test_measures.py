"""Every measurement runs against the real stack and produces figures."""

from pathlib import Path

import pytest

from bench import actions, event_log, scaling, scratch, storage
from bench.__main__ import Sizes, measure
from bench.lab import Lab
from store.database import connect
from store.migrate import migrate

SMALL = Sizes(
    steps=2,
    sessions=2,
    at_once=2,
    histories=(2, 4),
    submissions=1,
    streamed=1,
    waiting=2,
    long=(2, 4),
)


async def test_actions_that_the_cloud_would_bill(lab: Lab) -> None:
    found = await actions.measure(lab, (3,), sessions=1)
    ending = {"activity": 2, "search attribute": 1}
    assert found.session == {"start": 1, "timer": 1, **ending}
    assert found.step == {"activity": 2}
    assert 1 <= found.heartbeats[3] <= 4  # one a second, except at the end
    assert found.usd(3) == pytest.approx((2 + found.heartbeats[3]) * 0.05)
    assert found.history > 20_000


async def test_growth_is_measured(lab: Lab, tmp_path: Path) -> None:
    scale = await scaling.measure(lab, tmp_path, workers=1, apis=1, sessions=2, at_once=2)
    assert scale.sessions_per_second > 0 and scale.fullest in scaling.PARTS
    stored = await storage.measure(lab, length=60, large=1_000)
    assert stored.pieces > 5 and stored.tables["events"] > stored.piece_bytes > stored.whole_bytes
    async with scratch.scratch_database(lab.pool) as name:
        await migrate(url := f"{lab.database_url.rpartition('/')[0]}/{name}")
        async with await connect(url) as pool:
            log = await event_log.measure(pool, 1_400)
    assert log.table_bytes > 1_400 * 200 and set(log.index_bytes) >= {"events_pkey", "events_by_conversation"}


async def test_bench_measures_every_figure(lab: Lab) -> None:
    """The last test here: its last measurement kills the worker."""
    rows = await measure(lab, 1, SMALL, lambda _: None)
    assert len(rows) == 23
    assert all(value > 0 for row in rows for value in row.ours)
    steps, rate, (*histories, flat), handle = rows[3:11], rows[11], rows[12:15], rows[15]
    piece, other_form, first, last, ratio, _, recovery = rows[16:]
    queued_first = [False, False, False, True]  # and bookkeeping, which is not queued, last
    assert ["bookkeeping" in row.name for row in steps] == queued_first * 2
    for row in (*steps, rate):
        assert row.to_bare is not None and row.to_calling is not None
    # the bare loop passes only a few words, so no history can be smaller than its own
    assert all(500 < row.bare[0] < row.ours[0] for row in histories if row.bare)
    assert flat.ours == [histories[1].ours[0] / histories[0].ours[0]]
    assert handle.name == "time to the handle"
    for row in (piece, other_form):
        assert row.name.startswith("CPU of a streamed piece") and row.to_calling is not None
    assert ratio.ours[0] == max(first.ours + last.ours) / min(first.ours + last.ours)
    assert recovery.to_bare is not None and recovery.to_bare.median > 1
