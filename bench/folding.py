"""Deltas of ended sessions before and after they are folded: bytes, the time of a fold, and the time of reading."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench import cpu, scratch
from bench.lab import Lab
from domain.ids import new_id
from store import events, folded_events

TENANT = "default"
ROUNDS = 5


@dataclass(frozen=True)
class Cost:
    """Of one session, in milliseconds."""

    wall: float
    postgres: float
    here: float


@dataclass(frozen=True)
class Stored:
    rows: int  # of deltas
    row_bytes: int  # of these rows
    table_bytes: float  # by which the table of events grows for each session, with its vacuumed free room
    index_bytes: float


@dataclass(frozen=True)
class FoldFigures:
    before: Stored
    after: Stored
    read_before: Cost  # of all events of a session
    read_after: Cost
    fold: Cost


async def measure(lab: Lab, task_id: str, copies: int) -> FoldFigures:
    """The table grows by copies of a session that are not folded, then in rounds by copies that are."""
    pool = lab.pool

    async def copy() -> list[str]:
        ids = sorted(new_id() for _ in range(copies))
        await scratch.copy_events(pool, TENANT, task_id, ids)
        return ids

    async def rows_of(session_id: str) -> tuple[int, int]:
        return await scratch.event_bytes(pool, TENANT, session_id, "message_delta")

    async def read(session_id: str) -> None:
        after = 0
        while found := await events.of_session(pool, TENANT, session_id, after, 200):
            after = found[-1].seq

    empty = await _sizes(lab)
    ids = await copy()
    unfolded = _growth(empty, await _sizes(lab), copies)
    plain = await rows_of(ids[0])
    read_before = await _cost(lab, ids, read)
    fold = await _cost(lab, ids, lambda one: folded_events.fold_session(pool, TENANT, one))
    first = await _sizes(lab)
    read_after = await _cost(lab, ids, read)
    for _ in range(ROUNDS):
        for one in await copy():
            await folded_events.fold_session(pool, TENANT, one)
        last = await _sizes(lab)
    folded = _growth(first, last, copies * ROUNDS)
    return FoldFigures(
        Stored(*plain, *unfolded), Stored(*await rows_of(ids[0]), *folded), read_before, read_after, fold
    )


async def _sizes(lab: Lab) -> tuple[int, int]:
    await scratch.vacuum_events(lab.pool)
    table, indexes = await scratch.sizes_of_events(lab.pool)
    return table, sum(indexes.values())


def _growth(before: tuple[int, int], after: tuple[int, int], sessions: int) -> tuple[float, float]:
    return (after[0] - before[0]) / sessions, (after[1] - before[1]) / sessions


async def _cost(lab: Lab, ids: list[str], act: Callable[[str], Awaitable[object]]) -> Cost:
    spent, mine, began = cpu.seconds([lab.pids["postgres"]]), time.process_time(), time.perf_counter()
    for one in ids:
        await act(one)
    taken = (
        time.perf_counter() - began,
        cpu.seconds([lab.pids["postgres"]]) - spent,
        time.process_time() - mine,
    )
    return Cost(*(seconds * 1_000 / len(ids) for seconds in taken))


def as_text(found: FoldFigures) -> str:
    def cost(of: Cost) -> str:
        return f"{of.wall:.1f} ms (PostgreSQL {of.postgres:.1f}, this process {of.here:.1f} ms of CPU)"

    def stored(of: Stored) -> str:
        return (
            f"{of.rows} rows of deltas with {of.row_bytes:,} bytes; all events of a session: "
            f"table {of.table_bytes:,.0f}, indexes {of.index_bytes:,.0f} bytes"
        )

    return (
        f"before the fold: {stored(found.before)}\nafter the fold: {stored(found.after)}\n"
        f"all events read in {cost(found.read_before)}, folded in {cost(found.read_after)}\n"
        f"the fold takes {cost(found.fold)}"
    )
