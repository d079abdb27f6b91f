"""Cursors: their content, and cursors that somebody changed."""

import base64
from datetime import UTC, datetime

import pytest

from api.http import paging
from api.http.problems import Unreadable
from domain.ids import new_id

QUERY = {"status": "open"}
AT = datetime(2031, 5, 6, 7, 8, 9, 12, tzinfo=UTC)


def test_cursor_contains_its_id_and_moment() -> None:
    last = new_id()
    assert paging.position(QUERY, paging.cursor(QUERY, last)) == last
    assert paging.moment_and_id(QUERY, paging.cursor(QUERY, last, AT)) == (AT, last)
    assert paging.moment_and_id(QUERY, paging.cursor(QUERY, last)) == (None, last)
    assert paging.moment_and_id(QUERY, None) == (None, "")
    assert paging.position(QUERY, None) is None


def made(text: str) -> str:
    """A cursor as an attacker could write it, since the digest uses no secret."""
    digest = paging._digest(QUERY, text)
    return base64.urlsafe_b64encode(f"{text[:26]}{digest}{text[26:]}".encode()).decode()


@pytest.mark.parametrize(
    "given",
    [
        *("", "x", "…", "A" * 200, paging.cursor({"status": "answered"}, new_id(), AT)),
        *(made(f"{new_id()}{moment}") for moment in ("soon", "2031-05-06", "9999-12-31T23:59:59-23:00", "\x00")),
    ],
    ids=[f"cursor{number}" for number in range(9)],  # cursors differ between test processes, names of tests must not
)
def test_other_cursors_are_refused(given: str) -> None:
    with pytest.raises(Unreadable):
        paging.moment_and_id(QUERY, given)
