"""The table of events when it is large: `python -m bench.event_log --rows 10000000` fills it in a scratch database and
measures appends, reads, the sizes of its indexes, and vacuum after a tenth of the sessions was removed."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

import click

from bench import scratch
from bench.lab import open_lab
from domain.events import EventRow, StepStarted
from domain.sessions.session import SessionRef
from store import events
from store.database import Pool, connect
from store.migrate import migrate

TENANT = "default"
PER_SESSION = 70  # events of a session of ten steps
BLOCK = 1_000_000
PROBES = 200


@dataclass(frozen=True)
class EventLogFigures:
    rows: int
    fill_seconds: float
    append_ms: float
    read_ms: float  # all events of one session
    read_conversation_ms: float
    table_bytes: int
    index_bytes: dict[str, int]
    delete_seconds: float  # of a tenth of all sessions, the oldest
    vacuum_seconds: float


async def measure(pool: Pool, rows: int) -> EventLogFigures:
    began = time.perf_counter()
    for first in range(0, rows, BLOCK):
        await scratch.fill_events(pool, TENANT, first, min(BLOCK, rows - first), PER_SESSION)
    filled = time.perf_counter() - began
    await scratch.vacuum_events(pool)
    sessions = rows // PER_SESSION
    ref = SessionRef(tenant=TENANT, session_id="z" * 26, conversation_id="z" * 26)
    await scratch.begin_events(pool, TENANT, ref.session_id)
    event = EventRow.of(ref, StepStarted(step=1, description="Deciding what to do"), datetime.now(UTC))
    some = [str(number * 7_919 % sessions).zfill(26) for number in range(PROBES)]
    append = await _median(lambda _: events.append(pool, "", [event, event]), some)
    read = await _median(lambda one: events.of_session(pool, TENANT, one, -1), some)
    conversation = await _median(lambda one: events.of_conversation(pool, TENANT, one, -1), some)
    table, indexes = await scratch.sizes_of_events(pool)
    began = time.perf_counter()
    await scratch.delete_events(pool, TENANT, str(sessions // 10).zfill(26))
    deleted = time.perf_counter() - began
    began = time.perf_counter()
    await scratch.vacuum_events(pool)
    vacuumed = time.perf_counter() - began
    return EventLogFigures(rows, filled, append, read, conversation, table, indexes, deleted, vacuumed)


async def _median(act: Callable[[str], Awaitable[object]], some: list[str]) -> float:
    taken = []
    for one in some:
        began = time.perf_counter()
        await act(one)
        taken.append((time.perf_counter() - began) * 1_000)
    return median(taken)


def as_text(found: EventLogFigures) -> str:
    indexes = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in found.index_bytes.items())
    return (
        f"{found.rows:,} events, written in {found.fill_seconds:.0f} s: "
        f"table {found.table_bytes / 1e6:,.0f} MB, {indexes}\n"
        f"append of two {found.append_ms:.2f} ms, all events of a session {found.read_ms:.2f} ms, of a conversation "
        f"{found.read_conversation_ms:.2f} ms\n"
        f"a tenth deleted in {found.delete_seconds:.1f} s, vacuum {found.vacuum_seconds:.1f} s"
    )


@click.command()
@click.option("--rows", type=click.IntRange(min=PER_SESSION * 10), multiple=True, default=(100_000, 10_000_000))
def main(rows: tuple[int, ...]) -> None:
    """Measure a table of this many events, for each number."""

    async def run(many: int) -> EventLogFigures:
        async with open_lab() as lab, scratch.scratch_database(lab.pool) as name:
            url = f"{lab.database_url.rpartition('/')[0]}/{name}"
            await migrate(url)
            async with await connect(url) as pool:
                return await measure(pool, many)

    for many in rows:
        click.echo(as_text(asyncio.run(run(many))))


if __name__ == "__main__":
    main()
