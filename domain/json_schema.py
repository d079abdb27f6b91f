"""JSON schemas that others write: whether one is safe to use, and where a value does not fit it.

The library's validators run `pattern` with a backtracking engine and do not limit their work. Ours use RE2 and a work
budget, so that no schema can block the process that checks a value.
"""

import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache, wraps
from itertools import islice
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend, validator_for

from domain.json_object import JsonObject
from domain.patterns import PatternError, check_pattern, matches

MAX_BYTES = 65_536
MAX_ERRORS = 20
WORK = 500_000  # keywords applied and characters matched, for one value
COMPLEXITY = "complexity"  # the error's keyword if the work budget is spent
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_left: ContextVar[int] = ContextVar("_left", default=WORK)

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]


class SchemaProblem(NamedTuple):
    field: str
    message: str
    allowed: tuple[str, ...] = ()


class _TooMuchWork(Exception):
    """The work budget of one check is spent."""


def fits(schema: JsonObject, value: Any) -> bool:
    return not errors(schema, value, most=1)


def errors(schema: JsonObject, value: Any, most: int = MAX_ERRORS) -> list[ValidationError]:
    """The first errors of a value. The last one has the keyword COMPLEXITY if the check took too much work."""
    found: list[ValidationError] = []
    token = _left.set(WORK)
    try:
        found.extend(islice(_validator(schema).iter_errors(value), most))
    except (_TooMuchWork, RecursionError, PatternError):
        message = "the value takes too much work to check against the schema"
        found.append(ValidationError(message, validator=COMPLEXITY, validator_value=None))
    finally:
        _left.reset(token)
    return found


def schema_problems(name: str, schema: JsonObject) -> list[SchemaProblem]:
    """List the faults of a schema; `name` is the field that holds it."""
    size = len(json.dumps(schema).encode())
    if size > MAX_BYTES:
        return [SchemaProblem(name, f"{size} bytes of JSON; at most {MAX_BYTES} are allowed")]
    try:
        # Formats are not checked, because "regex" would mean Python's dialect.
        kind: Any = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema, format_checker=FormatChecker(()))
    except SchemaError as error:
        return [SchemaProblem(".".join([name, *map(str, error.absolute_path)]), error.message)]
    nodes = list(_objects(name, schema))
    problems = [problem for path, node in nodes for problem in _node_problems(path, node, root=node is schema)]
    if any("patternProperties" in node for _, node in nodes) and any("unevaluatedProperties" in n for _, n in nodes):
        problems.append(SchemaProblem(name, "patternProperties and unevaluatedProperties exclude each other"))
    return problems or _probe(name, schema)


def _validator(schema: JsonObject) -> Any:
    kind = _safe(validator_for(schema, default=Draft202012Validator))
    # Drop $schema: for a reference to the root the library would choose its own validator class again.
    return kind({key: value for key, value in schema.items() if key != "$schema"})


@cache
def _safe(kind: Any) -> Any:
    replaced = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    keywords = {name: _counted(replaced.get(name, function)) for name, function in kind.VALIDATORS.items()}
    return extend(kind, keywords)  # type: ignore[no-untyped-call]


def _counted(keyword: Keyword) -> Keyword:
    @wraps(keyword)
    def counted(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _spend(1)
        yield from keyword(validator, rule, instance, schema) or ()

    return counted


def _spend(work: int) -> None:
    left = _left.get() - work
    _left.set(left)
    if left < 0:
        raise _TooMuchWork()


def _matches(pattern: str, text: str) -> bool:
    _spend(len(text))
    return matches(pattern, text)


def _pattern(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _matches(rule, instance):
        yield ValidationError(f"{instance!r} does not match {rule!r}")


def _pattern_properties(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in rule.items():
        for name, value in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extra = [name for name in instance if name not in known and not any(_matches(one, name) for one in patterns)]
    if validator.is_type(rule, "object"):
        for name in extra:
            yield from validator.descend(instance[name], rule, path=name)
    elif not rule and extra:
        listed = ", ".join(map(repr, extra[:5]))
        yield ValidationError(f"additional properties are not allowed, such as {listed}")


def _unique_items(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # The library compares objects pair by pair, which takes hours for a large array.
    if rule and validator.is_type(instance, "array") and len(set(map(_hashable, instance))) < len(instance):
        yield ValidationError("the array has non-unique elements")


def _hashable(value: Any) -> Any:
    _spend(1)
    if isinstance(value, dict):
        return "object", frozenset((name, _hashable(one)) for name, one in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_hashable, value))
    return ("boolean", value) if isinstance(value, bool) else value  # 1 is 1.0, but not true


def _node_problems(path: str, node: JsonObject, *, root: bool) -> Iterator[SchemaProblem]:
    for key in _REFERENCES:
        reference = node.get(key)
        if isinstance(reference, str) and not reference.startswith("#"):
            yield SchemaProblem(f"{path}.{key}", f"{reference!r} points outside this schema", ("#/...",))
    if not root and isinstance(node.get("$schema"), str):
        yield SchemaProblem(f"{path}.$schema", "only the whole schema may choose its dialect")
    patterns = [(f"{path}.pattern", node.get("pattern"))]
    if isinstance(properties := node.get("patternProperties"), dict):
        patterns += [(f"{path}.patternProperties", pattern) for pattern in properties]
    for field, pattern in patterns:
        if isinstance(pattern, str):
            try:
                check_pattern(pattern)
            except PatternError as error:
                yield SchemaProblem(field, str(error))


def _objects(path: str, value: object) -> Iterator[tuple[str, JsonObject]]:
    if isinstance(value, dict):
        yield path, value
        for key, child in value.items():
            yield from _objects(f"{path}.{key}", child)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _objects(f"{path}.{index}", child)


def _probe(name: str, schema: JsonObject) -> list[SchemaProblem]:
    # A dangling reference, or one to itself, is only noticed when something is validated.
    try:
        samples: tuple[object, ...] = ({}, [], "", 0)
        for sample in samples:
            if any(error.validator == COMPLEXITY for error in errors(schema, sample)):
                return [SchemaProblem(name, "refers to itself without end, or takes too much work to check")]
    except Exception as error:  # the library raises many kinds, and none may escape to the submission
        return [SchemaProblem(name, f"cannot be used: {error}")]
    return []
