"""Ids are safe in URLs; a derived id is a pure function of its key."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.ids import derive_id, is_id, new_id

MILLISECONDS = st.integers(0, 2**48 - 1)
PARTS = st.lists(st.text(st.characters(exclude_characters="\x1f", codec="utf-8"), max_size=20), max_size=4)


@given(MILLISECONDS)
def test_an_id_is_26_url_safe_characters(now: int) -> None:
    made = new_id(now)
    assert is_id(made) and len(made) == 26
    assert quote(made, safe="") == made


@pytest.mark.proves("D13")
@given(MILLISECONDS, PARTS, PARTS)
def test_a_derived_id_follows_from_its_key_alone(now: int, parts: list[str], others: list[str]) -> None:
    base = new_id(now)
    derived = derive_id(base, *parts)
    assert is_id(derived)
    assert derive_id(base, *parts) == derived
    assert derived[:10] == base[:10], "sorts beside its base"
    assert derived != base
    assert (derive_id(base, *others) == derived) == (parts == others)
    assert derive_id(new_id(now), *parts) != derived, "another base of the same moment is another key"
