"""A preview is one line of bounded length, and omits nothing that fits."""

from hypothesis import given
from hypothesis import strategies as st

from domain.sessions.session import PREVIEW, preview


@given(st.text(max_size=1_000), st.integers(1, 400))
def test_a_preview_is_one_bounded_line(text: str, limit: int) -> None:
    line = preview(text, limit)
    assert len(line) <= limit
    assert line.split() == line.strip().split(" ") or not line.strip()
    assert "\n" not in line
    flat = " ".join(text.split())
    assert line == flat if len(flat) <= limit else line == flat[: limit - 1] + "…"


def test_the_bound_is_what_history_can_afford() -> None:
    assert len(preview("x" * 10_000)) == PREVIEW == 300
