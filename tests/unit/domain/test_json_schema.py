"""Schemas from callers cannot block the process that checks a value against them."""

import time
from typing import Any

import pytest

from domain import json_schema
from domain.json_schema import COMPLEXITY, errors, fits, schema_problems

HANGS = "^(a+)+$"  # Python's engine needs seconds for 26 characters, and twice as long for each further one
TEXT = "a" * 40 + "!"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "pattern": HANGS}, TEXT),
        ({"patternProperties": {HANGS: {"type": "string"}}, "additionalProperties": False}, {TEXT: "x"}),
        ({"propertyNames": {"pattern": HANGS}}, {TEXT: "x"}),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "pattern": HANGS}, TEXT),
        # a reference to the root leads back to the dialect named there
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "pattern": HANGS,
                "properties": {"a": {"$ref": "#"}},
            },
            {"a": TEXT},
        ),
        ({"uniqueItems": True}, [*({"a": number} for number in range(30_000)), {"a": 1}]),
    ],
)
def test_no_schema_takes_long(schema: dict[str, Any], value: object) -> None:
    begun = time.process_time()  # process time, so that a busy machine does not fail the test
    assert not fits(schema, value)
    assert time.process_time() - begun < 10


def test_references_that_double_at_every_level_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "WORK", json_schema.WORK // 10)
    doubled = {str(n): {"allOf": [{"$ref": f"#/$defs/{n - 1}"}] * 2} for n in range(1, 40)}
    schema = {"$defs": {"0": {"type": "string"}, **doubled}, "$ref": "#/$defs/39"}
    begun = time.process_time()
    assert not fits(schema, "x")
    assert time.process_time() - begun < 1


def test_schema_check_that_takes_too_much_work_has_its_own_error() -> None:
    schema = {"items": {"pattern": "b$"}}
    assert [error.validator for error in errors(schema, ["b" * 100_000] * 10)] == [COMPLEXITY]


@pytest.mark.parametrize(
    ("schema", "field", "reason"),
    [
        ({"pattern": "(?=a)"}, "s.pattern", "lookaround"),
        (
            {"properties": {"a": {"patternProperties": {"ok": {}, r"(a)\1": {}}}}},
            "s.properties.a.patternProperties",
            "",
        ),
        ({"pattern": "a" * 1_001}, "s.pattern", "1000 characters"),
        ({"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}}, "s.properties.a.$schema", ""),
        ({"patternProperties": {"a": {}}, "allOf": [{"unevaluatedProperties": False}]}, "s", "exclude"),
    ],
)
def test_a_schema_that_cannot_be_checked_safely_is_refused(schema: dict[str, Any], field: str, reason: str) -> None:
    [problem] = schema_problems("s", schema)
    assert problem.field == field and reason in problem.message


def test_keywords_mean_what_the_standard_says() -> None:
    named = {"properties": {"id": {}}, "patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}
    assert schema_problems("s", named) == []
    assert fits(named, {"id": 1, "x-a": "b"}) and not fits(named, {"x-a": 1}) and not fits(named, {"y": "b"})
    assert fits({"additionalProperties": {"type": "string"}}, {"a": "b"})
    assert not fits({"additionalProperties": {"type": "string"}}, {"a": 1})
    assert fits({"uniqueItems": True}, [1, True, "1", {"a": 1}, [1]]) and not fits({"uniqueItems": True}, [1, 1.0])
    assert fits({"pattern": r"^\p{L}+$"}, "straße") and not fits({"pattern": "^a"}, "\ud800")
