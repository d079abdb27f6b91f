import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from api.http import strict_json
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
    assert strict_json.parse(json.dumps(value).encode()) == value
    assert strict_json.parse(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        value = strict_json.parse(raw)
    except ErrandError as error:
        assert 400 <= error.status < 500
    else:
        assert not isinstance(value, float) or math.isfinite(value)


def test_bounds_are_inclusive() -> None:
    deep: object = 0
    for _ in range(strict_json.MAX_DEPTH):
        deep = [deep]
    assert strict_json.parse(json.dumps(deep).encode()) == deep
    assert len(strict_json.parse(json.dumps([0] * strict_json.MAX_MEMBERS).encode())) == strict_json.MAX_MEMBERS
