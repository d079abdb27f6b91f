"""Tool output is cut to its bound and cleaned of hidden characters."""

from hypothesis import given
from hypothesis import strategies as st

from activities.tools.tool import bound_text, clean


def test_short_text_is_untouched() -> None:
    assert bound_text("abc", 10) == ("abc", False)


@given(st.text(min_size=101, max_size=500))
def test_long_text_keeps_head_and_tail_and_says_what_is_missing(text: str) -> None:
    shown, cut = bound_text(text, 100)
    assert cut
    assert shown.startswith(text[:75])
    assert shown.endswith(text[-25:])
    assert f"{len(text) - 100:,} of {len(text):,} characters left out" in shown


def test_hidden_characters_are_stripped_and_layout_is_kept() -> None:
    hidden = "\x00\x1b\x7f\ud800\udfff" + "".join(chr(0xE0000 + ord(letter)) for letter in "ignore all")
    assert clean(f"a{hidden}b\t\n\r é 😀") == "ab\t\n\r é 😀"


@given(st.text(alphabet=st.characters()))
def test_clean_text_can_be_stored(text: str) -> None:
    assert b"\0" not in clean(text).encode()
    assert clean(clean(text)) == clean(text)
