"""Folded events: consecutive deltas of an ended session share one row, because a row of its own costs ten times the
text of a delta. Nothing is lost: readers get each of them again with its numbers, its time and its text."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from operator import attrgetter
from typing import Any, TypeAlias

import asyncpg

from domain.json_object import JsonObject
from store.database import Connection, Pool

# The numbers in the conversation of a row's first and last event differ by less than this. A page of a conversation, in
# which sessions stream at the same time, finds all rows with events between two numbers close to them.
SPAN = 128
AT_ONCE = 2_000  # events of a session that are looked at together
MICROSECOND = timedelta(microseconds=1)

Row: TypeAlias = "asyncpg.Record | dict[str, Any]"  # a row of the table, or one event of a folded row


@dataclass(frozen=True)
class Delta:
    seq: int
    conversation_id: str
    conv_seq: int
    type: str
    at: datetime
    data: JsonObject

    @property
    def foldable(self) -> bool:
        return list(self.data) == ["step", "text"]

    def follows(self, last: "Delta", first: "Delta") -> bool:
        """Whether it can share the row of those from `first` to `last`."""
        return (
            self.foldable
            and first.foldable
            and (self.seq, self.type, self.data["step"]) == (last.seq + 1, last.type, last.data["step"])
            and self.conv_seq - first.conv_seq < SPAN
        )


@dataclass(frozen=True)
class FoldedRow:
    """A row for deltas that follow each other, with the numbers and the time of the last."""

    last: Delta
    data: str
    folded: int | None  # how many they are, if more than one


def fold(deltas: Iterable[Delta]) -> list[FoldedRow]:
    """As few rows as possible for deltas in the order of their numbers."""
    runs: list[list[Delta]] = []
    for delta in deltas:
        if runs and delta.follows(runs[-1][-1], runs[-1][0]):
            runs[-1].append(delta)
        else:
            runs.append([delta])
    return [
        FoldedRow(run[-1], _data(run), len(run)) if len(run) > 1 else FoldedRow(run[0], _json(run[0].data), None)
        for run in runs
    ]


def _data(run: Sequence[Delta]) -> str:
    waits = [(later.at - earlier.at) // MICROSECOND for earlier, later in pairwise(run)]
    numbers = [later.conv_seq - earlier.conv_seq for earlier, later in pairwise(run)]
    data = {"step": run[0].data["step"], "texts": [delta.data["text"] for delta in run], "microseconds": waits}
    if set(numbers) != {1}:  # several sessions of the conversation streamed at the same time
        data["numbers"] = numbers
    return _json(data)


def _json(data: JsonObject) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def unfold(row: Row) -> Iterator[Row]:
    """The events of a row: itself, unless it is folded. The data of folded events are already parsed."""
    if row["folded"] is None:
        yield row
        return
    data = json.loads(row["data"])
    waits: list[int] = data["microseconds"]
    numbers: list[int] = data.get("numbers") or [1] * len(waits)
    one = dict(row)
    seq, conv_seq, at = one["seq"] - len(waits), one["conv_seq"] - sum(numbers), one["at"] - sum(waits) * MICROSECOND
    for text, wait, number in zip(data["texts"], [*waits, 0], [*numbers, 0], strict=True):
        yield {**one, "seq": seq, "conv_seq": conv_seq, "at": at, "data": {"step": data["step"], "text": text}}
        seq, conv_seq, at = seq + 1, conv_seq + number, at + wait * MICROSECOND


async def due(pool: Pool, ended_before: timedelta, limit: int) -> list[tuple[str, str]]:
    """Sessions whose deltas should be folded, tenant and id, the oldest first."""
    rows = await pool.fetch(
        """SELECT tenant, session_id FROM unfolded_sessions WHERE ended_at < now() - $1::interval
            ORDER BY ended_at LIMIT $2""",
        ended_before,
        limit,
    )
    return [(row["tenant"], row["session_id"]) for row in rows]


async def fold_session(pool: Pool, tenant: str, session_id: str) -> bool:
    """Fold the deltas of an ended session; False if it was done before, or if its content was removed. It is one
    transaction, so that a reader sees the log as it was before or after it."""
    async with pool.acquire() as connection, connection.transaction():
        # this waits for another process that is folding the same session or removing its content
        last = await connection.fetchval(
            """DELETE FROM unfolded_sessions WHERE tenant = $1 AND session_id = $2 RETURNING coalesce(
                   (SELECT last FROM event_counters WHERE tenant = $1 AND scope = 's/' || $2), 0)""",
            tenant,
            session_id,
        )
        for after in range(0, last or 0, AT_ONCE):
            deltas = await _take(connection, tenant, session_id, after)
            await _write(connection, tenant, session_id, fold(deltas))
    return last is not None


async def _take(connection: Connection, tenant: str, session_id: str, after: int) -> list[Delta]:
    """Delete the rows of deltas with these numbers, and return them."""
    rows = await connection.fetch(
        """DELETE FROM events WHERE tenant = $1 AND session_id = $2 AND seq > $3 AND seq <= $4
              AND is_delta(type) AND folded IS NULL
           RETURNING seq, conversation_id, conv_seq, type, at, data""",
        tenant,
        session_id,
        after,
        after + AT_ONCE,
    )
    return sorted((Delta(**{**row, "data": json.loads(row["data"])}) for row in rows), key=attrgetter("seq"))


async def _write(connection: Connection, tenant: str, session_id: str, rows: Sequence[FoldedRow]) -> None:
    if rows:
        await connection.executemany(
            """INSERT INTO events (tenant, session_id, seq, conversation_id, conv_seq, type, at, data, batch, folded)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', $9)""",
            [
                (
                    *(tenant, session_id, row.last.seq, row.last.conversation_id, row.last.conv_seq, row.last.type),
                    *(row.last.at, row.data, row.folded),
                )
                for row in rows
            ],
        )
