"""Requests and answers: cursors, strict JSON, the agent of a task and the types of channels."""

import base64
import json
import math
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from api.http import body, paging
from api.http.problems import Unreadable
from domain.errors import ErrandError, Invalid
from domain.ids import new_id

QUERY = {"status": "open"}
AT = datetime(2031, 5, 6, 7, 8, 9, 12, tzinfo=UTC)


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


PLAIN = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | PLAIN,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(PLAIN, inner, max_size=5),
    max_leaves=30,
)


@settings(max_examples=50)
@given(VALUES)
def test_parser_reads_what_json_writes(value: object) -> None:
    assert body.parse_json(json.dumps(value).encode()) == value
    assert body.parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        value = body.parse_json(raw)
    except ErrandError as error:
        assert 400 <= error.status < 500
    else:
        assert not isinstance(value, float) or math.isfinite(value)


def test_bounds_are_inclusive() -> None:
    deep: object = 0
    for _ in range(body.MAX_DEPTH):
        deep = [deep]
    assert body.parse_json(json.dumps(deep).encode()) == deep
    assert len(body.parse_json(json.dumps([0] * body.MAX_MEMBERS).encode())) == body.MAX_MEMBERS


class Texts(BaseModel):
    input: str | list[dict[str, int]]


@pytest.mark.parametrize(
    ("value", "pointers"),
    [
        ([1] * 9_000, [f"/input/{place}" for place in range(50)]),
        ([{"a": "b"}] * 4_500, [f"/input/{place}/a" for place in range(50)]),
        (1, ["/input"] * 2),
    ],
)
def test_findings_are_the_nearest_ones_and_many_take_no_time(value: Any, pointers: list[str]) -> None:
    raw, begun = json.dumps({"input": value}).encode(), time.process_time()
    with pytest.raises(Invalid) as refused:
        body.validate_body(Texts, body.parse_json(raw), raw)
    assert [one.pointer for one in refused.value.extra["errors"]] == pointers
    assert time.process_time() - begun < 2
