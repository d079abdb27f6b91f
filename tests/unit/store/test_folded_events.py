"""Folding deltas is lossless: whatever the log was, its rows unfold to the same events."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from domain.events import EVENTS, MessageDelta, TextDelta, ThinkingDelta
from settings import ROOT
from store.folded_events import SPAN, Delta, fold, unfold

DELTAS = (MessageDelta.type, ThinkingDelta.type)
STORE = ROOT / "store"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@st.composite
def logs(draw: st.DrawFn) -> list[Delta]:
    """Deltas of one session in order, with other events and other sessions between them."""
    found: list[Delta] = []
    seq, conv_seq, at = 0, 0, BEGAN
    for _ in range(draw(st.integers(0, 30))):
        seq += draw(st.sampled_from([1, 1, 1, 1, 2]))
        conv_seq += draw(st.sampled_from([1, 1, 1, 2, 40]))
        at += timedelta(microseconds=draw(st.integers(-1_000, 10**9)))  # a worker's clock may be set back
        data = {"step": draw(st.sampled_from([1, 1, 1, 2])), "text": draw(st.text(max_size=8))}
        more = {"more": 1} if draw(st.integers(0, 20)) == 0 else {}
        found.append(Delta(seq, "c", conv_seq, draw(st.sampled_from([*DELTAS[:1] * 5, *DELTAS])), at, {**data, **more}))
    return found


def rows_of(log: list[Delta]) -> list[dict[str, Any]]:
    """The rows of a folded log."""
    return [{**vars(row.last), "data": row.data, "folded": row.folded} for row in fold(log)]


@given(logs())
def test_folded_log_unfolds_to_the_same_events(log: list[Delta]) -> None:
    found = []
    for row in rows_of(log):
        events = list(unfold(row))
        assert row["folded"] in (None, len(events))
        assert events[-1]["conv_seq"] - events[0]["conv_seq"] < SPAN
        for event in events:
            data = event["data"]
            parsed = json.loads(data) if isinstance(data, str) else data
            found.append(Delta(**{**{name: event[name] for name in vars(log[0])}, "data": parsed}))
    assert found == log
    assert [list(delta.data) for delta in found] == [list(delta.data) for delta in log]  # also their order


def test_one_streamed_answer_is_one_row_for_each_span() -> None:
    log = [Delta(n, "c", n, DELTAS[0], BEGAN, {"step": 1, "text": "x"}) for n in range(1, 2 * SPAN + 2)]
    assert [row["folded"] for row in rows_of(log)] == [SPAN, SPAN, None]


def test_the_database_and_the_code_agree_which_events_are_deltas() -> None:
    listed = re.findall(r"'(\w+)'", (STORE / "functions" / "is_delta.sql").read_text())
    assert sorted(listed) == sorted(event.type for event in EVENTS if issubclass(event, TextDelta))
    others = [*STORE.glob("functions/*.sql"), *STORE.glob("*.py")]
    assert [file.name for file in others if ThinkingDelta.type in file.read_text()] == ["is_delta.sql"]
