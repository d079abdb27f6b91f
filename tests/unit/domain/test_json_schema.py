"""Schemas from callers cannot block the process that checks a value against them."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from domain import json_schema
from domain.errors import Unavailable
from domain.ids import current_tenant
from domain.json_schema import COMPLEXITY, MOST_OF_TENANT, errors, fits, run_check, schema_problems
from domain.task import TaskSpec

HANGS = "^(a+)+$"  # Python's engine needs seconds for 26 characters, and twice as long for each further one
TEXT = "a" * 40 + "!"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "pattern": HANGS}, TEXT),
        ({"patternProperties": {HANGS: {"type": "string"}}, "additionalProperties": False}, {TEXT: "x"}),
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


@pytest.mark.parametrize("schema", [{"$schema": 5}, {"$ref": "#/none"}, {"multipleOf": 1e-320}])
def test_a_check_with_which_the_library_fails_is_an_error(schema: dict[str, Any]) -> None:
    assert [error.validator for error in errors(schema, 10**400)] == [COMPLEXITY]


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def doubled(levels: int) -> dict[str, Any]:
    parts = {str(n): {"allOf": [{"$ref": f"#/$defs/{n - 1}"} for _ in range(2)]} for n in range(1, levels + 1)}
    return {"type": "object", "$defs": {"0": {"type": "object"}, **parts}, "$ref": f"#/$defs/{levels}"}


NO_TEXTS: list[Any] = [5, 1.5, None, True, [], {}]
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
TWICE = [{"required": ["b"], "properties": {"a": {"$ref": "#/$defs/n"}}} for _ in range(2)]
LARGE = {f"k{number}": "x" * 80 for number in range(9_000)}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubled(12), {}),
        ({"$defs": {"n": {"anyOf": TWICE, "unevaluatedProperties": False}}, "$ref": "#/$defs/n"}, nested(60)),
        ({"items": {"enum": [f"e{number}" for number in range(6_000)]}}, ["z"] * 9_000),
        ({"anyOf": [{"type": "string"} for _ in range(1_000)]}, LARGE),  # every error quotes the value
        ({"patternProperties": {f"^(a|b{number})*$": {} for number in range(1_000)}}, LARGE),
    ],
)
def test_the_work_for_a_value_is_bounded(schema: dict[str, Any], value: object) -> None:
    begun = time.thread_time()
    fits(schema, value)
    assert time.thread_time() - begun < 2 * json_schema.SECONDS


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (doubled(20), "written out"),  # 1.2 kB
        ({"$defs": {"n": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/n"}]}}, "$ref": "#/$defs/n"}, "without end"),
        ({"$ref": "#/$defs/none"}, "nothing"),
        *(({"$schema": DRAFT_4, "items": {"$ref": other}}, "nothing") for other in NO_TEXTS),
        ({"properties": {"a": {"$id": "http://elsewhere/", "$ref": "#/$defs/b"}}, "$defs": {"b": {}}}, "address"),
        ({"$schema": DRAFT_4, "items": {"id": {}}}, "address"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": {"$id": 5}}, "address"),
        # the library compares such a list pair by pair
        ({"required": [number if number % 2 else str(number) for number in range(8_000)]}, "not of type"),
        ({"properties": {f"p{number}": {"anyOf": [{}]} for number in range(2_500)}}, "too much work"),
    ],
)
def test_a_schema_that_would_take_too_much_work_is_refused_at_once(schema: dict[str, Any], reason: str) -> None:
    begun = time.thread_time()
    [problem] = schema_problems("s", schema)
    assert reason in problem.message
    assert time.thread_time() - begun < 2 * json_schema.SECONDS


@pytest.mark.parametrize(
    "schema",
    [
        doubled(8),
        {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}},
        TaskSpec.model_json_schema(),
        {"$schema": DRAFT_4, "properties": {"$ref": {"type": "string"}}},
    ],
)
def test_shared_and_recursive_parts_may_be_used(schema: dict[str, Any]) -> None:
    assert schema_problems("s", schema) == []


KEYWORDS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), lambda inner: st.lists(inner, min_size=1, max_size=3)),
    **dict.fromkeys(
        ("properties", "patternProperties", "dependentSchemas"),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    ),
    **dict.fromkeys(
        ("not", "if", "then", "items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems"),
        lambda inner: inner,
    ),
    "$ref": lambda _: st.sampled_from(["#", *(f"#/$defs/{n}" for n in range(4)), "#/properties/a", "#/allOf/0"]),
    "type": lambda _: st.sampled_from(["object", "array", "string", ["integer", "null"]]),
    "enum": lambda _: st.lists(st.sampled_from([1, "a", None, [1], {"a": 1}]), min_size=1, max_size=3),
    "required": lambda _: st.lists(st.sampled_from("abc"), unique=True),
    "uniqueItems": lambda _: st.booleans(),
}
KEYWORD_SETS = st.lists(st.sampled_from(sorted(KEYWORDS)), min_size=1, max_size=3, unique=True)
SCHEMAS: Any = st.recursive(
    st.booleans() | st.builds(lambda n: {"$ref": f"#/$defs/{n}"}, st.integers(0, 3)),
    lambda inner: KEYWORD_SETS.flatmap(lambda keys: st.fixed_dictionaries({key: KEYWORDS[key](inner) for key in keys})),
    max_leaves=8,
)
VALUES: Any = st.recursive(
    st.sampled_from([1, 1.5, "a", "ab", None, True]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)
DIALECTS = [None, *(f"http://json-schema.org/draft-0{n}/schema#" for n in (4, 6, 7))]


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS, st.lists(SCHEMAS, min_size=4, max_size=4), st.lists(VALUES, max_size=3), st.sampled_from(DIALECTS))
def test_an_accepted_schema_means_what_the_library_says(
    schema: Any, parts: list[Any], values: list[Any], dialect: str | None
) -> None:
    whole = {**(schema if isinstance(schema, dict) else {"not": {"not": {}}}), "$defs": dict(enumerate(parts))}
    whole = json.loads(json.dumps(whole)) | ({"$schema": dialect} if dialect else {})
    begun = time.thread_time()
    if not schema_problems("s", whole):
        for value in values:
            expected = validator_for(whole, default=Draft202012Validator)(whole).is_valid(value)
            assert fits(whole, value) is expected
    assert time.thread_time() - begun < 2 * json_schema.SECONDS


DOUBLED: dict[str, Any] = {"allOf": [{"properties": {"a": {"$ref": "#/$defs/n"}}} for _ in range(2)]}


async def test_a_long_check_leaves_the_event_loop_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "WORK", 40_000)  # long enough to be noticed
    schema = {"$defs": {"n": DOUBLED}, "$ref": "#/$defs/n"}
    waiting = asyncio.gather(*(run_check(errors, schema, nested(60)) for _ in range(4)))
    turns = 0
    while not waiting.done():
        # the threads that everybody uses stay free too, and a small check does not wait for the large ones
        await asyncio.gather(asyncio.to_thread(time.sleep, 0.01), run_check(fits, {"type": "object"}, {}))
        turns += 1
    assert [[error.validator for error in found] for found in await waiting] == [[COMPLEXITY]] * 4
    assert turns > 10


async def test_long_checks_of_one_tenant_leave_room_for_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "WORK", 40_000)  # long enough to wait for each other
    schema, value = {"$defs": {"n": DOUBLED}, "$ref": "#/$defs/n"}, nested(60)

    async def checks_of(tenant: str, count: int) -> list[Any]:
        current_tenant.set(tenant)
        return await asyncio.gather(*(run_check(errors, schema, value) for _ in range(count)), return_exceptions=True)

    one, other = await asyncio.gather(
        asyncio.create_task(checks_of("one", MOST_OF_TENANT + 2)), asyncio.create_task(checks_of("other", 1))
    )
    assert [isinstance(found, Unavailable) for found in one] == [False] * MOST_OF_TENANT + [True] * 2
    assert [error.validator for error in other[0]] == [COMPLEXITY]
    [again] = await checks_of("one", 1)
    assert [error.validator for error in again] == [COMPLEXITY]


@pytest.mark.parametrize(
    ("schema", "field", "reason"),
    [
        ({"pattern": "(?=a)"}, "s.pattern", "lookaround"),
        (
            {"properties": {"a": {"patternProperties": {"ok": {}, r"(a)\1": {}}}}},
            "s.properties.a.patternProperties",
            "",
        ),
        ({"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}}, "s.properties.a.$schema", ""),
        ({"allOf": [{"unevaluatedProperties": False}]}, "s.allOf.0.unevaluatedProperties", "too much work"),
        *(({"$schema": other}, "s.$schema", "") for other in (*NO_TEXTS, "http://[")),
    ],
)
def test_a_schema_that_cannot_be_checked_safely_is_refused(schema: dict[str, Any], field: str, reason: str) -> None:
    [problem] = schema_problems("s", schema)
    assert problem.field == field and reason in problem.message
