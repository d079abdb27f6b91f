"""Folded events: consecutive deltas of an ended session share one row, because a row of its own costs ten times the
text of a delta. Nothing is lost: readers get each of them again with its numbers, its time and its text."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, TypeAlias

import asyncpg

from domain.events import MessageDelta, ThinkingDelta
from domain.json_object import JsonObject
from store.database import Connection, Pool

# The numbers in the conversation of a row's first and last event differ by less than this. A page of a conversation, in
# which sessions stream at the same time, finds all rows with events between two numbers close to them.
SPAN = 128
DELTAS = (MessageDelta.type, ThinkingDelta.type)
AT_ONCE = 2_000  # rows that are read at once
MICROSECOND = timedelta(microseconds=1)

Row: TypeAlias = "asyncpg.Record | dict[str, Any]"  # a row of the table, or one event of a folded row


@dataclass(frozen=True)
class Delta:
    seq: int
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
    """What becomes of the row of the last of `count` deltas; the rows of the others are deleted."""

    seq: int
    count: int
    data: str


def fold(deltas: Iterable[Delta]) -> list[FoldedRow]:
    """Rows for all deltas that can share one, of deltas in the order of their numbers."""
    runs: list[list[Delta]] = []
    for delta in deltas:
        if runs and delta.follows(runs[-1][-1], runs[-1][0]):
            runs[-1].append(delta)
        else:
            runs.append([delta])
    return [FoldedRow(run[-1].seq, len(run), _data(run)) for run in runs if len(run) > 1]


def _data(run: Sequence[Delta]) -> str:
    waits = [(later.at - earlier.at) // MICROSECOND for earlier, later in pairwise(run)]
    numbers = [later.conv_seq - earlier.conv_seq for earlier, later in pairwise(run)]
    data = {"step": run[0].data["step"], "texts": [delta.data["text"] for delta in run], "microseconds": waits}
    if set(numbers) != {1}:  # several sessions of the conversation streamed at the same time
        data["numbers"] = numbers
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
        mine = await connection.fetchval(
            "DELETE FROM unfolded_sessions WHERE tenant = $1 AND session_id = $2 RETURNING true", tenant, session_id
        )
        after = 0
        while mine and (deltas := await _deltas(connection, tenant, session_id, after)):
            await _write(connection, tenant, session_id, fold(deltas))
            after = deltas[-1].seq
    return bool(mine)


async def _deltas(connection: Connection, tenant: str, session_id: str, after: int) -> list[Delta]:
    rows = await connection.fetch(
        """SELECT seq, conv_seq, type, at, data FROM events
            WHERE tenant = $1 AND session_id = $2 AND seq > $3 AND type = ANY($4::text[]) AND folded IS NULL
            ORDER BY seq LIMIT $5""",
        tenant,
        session_id,
        after,
        DELTAS,
        AT_ONCE,
    )
    return [Delta(**{**row, "data": json.loads(row["data"])}) for row in rows]


async def _write(connection: Connection, tenant: str, session_id: str, rows: Sequence[FoldedRow]) -> None:
    if rows:
        await connection.execute(
            """WITH f AS (SELECT * FROM unnest($3::bigint[], $4::smallint[], $5::text[]) AS f(seq, folded, data)),
               gone AS (DELETE FROM events e USING f WHERE tenant = $1 AND session_id = $2
                           AND e.seq > f.seq - f.folded AND e.seq < f.seq)
               UPDATE events e SET data = f.data, folded = f.folded, batch = '' FROM f
                WHERE tenant = $1 AND session_id = $2 AND e.seq = f.seq""",
            tenant,
            session_id,
            [row.seq for row in rows],
            [row.count for row in rows],
            [row.data for row in rows],
        )
