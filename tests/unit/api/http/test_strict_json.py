import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from api.http import body
from domain.errors import ErrandError

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
