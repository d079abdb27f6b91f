"""Bodies of requests: any bytes are read or refused, and what is wrong with them is found soon."""

import json
import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from api.http import body
from domain.errors import ErrandError, Invalid


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        value = body.parse_json(raw)
    except ErrandError as error:
        assert 400 <= error.status < 500
    else:
        assert not isinstance(value, float) or math.isfinite(value)


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
