"""What two entries of a chain say never has one hash."""

from datetime import UTC, datetime

from errand.models import ChainedEntry
from hypothesis import given
from hypothesis import strategies as st

from domain.audit import link

TEXT = st.text(max_size=12)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@given(st.lists(TEXT, min_size=2, max_size=2), st.integers(1, 11))
def test_text_cannot_shift_from_one_field_to_the_next(texts: list[str], by: int) -> None:
    one, two = texts
    moved = (one + two[:by], two[by:])
    if moved != (one, two):
        first, second = (
            ChainedEntry(tenant="t", chain="c", seq=1, at=BEGAN, actor=actor, action=action)
            for actor, action in ((one, two), moved)
        )
        assert link(first) != link(second)
