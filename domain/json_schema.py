"""JSON schemas that others write: whether one can be used safely, and whether a value fits it."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for

MAX_BYTES = 65_536
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class SchemaProblem(NamedTuple):
    field: str
    message: str
    allowed: tuple[str, ...] = ()


def fits(schema: dict[str, Any], value: Any) -> bool:
    return validator_for(schema, default=Draft202012Validator)(schema).is_valid(value)


def schema_problems(name: str, schema: dict[str, Any]) -> list[SchemaProblem]:
    """List what is wrong with a schema; `name` is the field that holds it."""
    size = len(json.dumps(schema).encode())
    if size > MAX_BYTES:
        return [SchemaProblem(name, f"{size} bytes of JSON; at most {MAX_BYTES} are allowed")]
    validator = validator_for(schema, default=Draft202012Validator)
    try:
        validator.check_schema(schema)
    except SchemaError as error:
        return [SchemaProblem(".".join([name, *map(str, error.absolute_path)]), error.message)]
    found = [problem for path, node in _objects(name, schema) for problem in _node_problems(path, node)]
    return found or _probe(name, validator(schema))


def has_patterns(schema: dict[str, Any]) -> bool:
    """Whether a schema contains regular expressions, which may run for ever: only the operator may write those."""
    return any(
        isinstance(node.get("pattern"), str) or isinstance(node.get("patternProperties"), dict)
        for _, node in _objects("", schema)
    )


def _node_problems(path: str, node: dict[str, Any]) -> Iterator[SchemaProblem]:
    for key in _REFERENCES:
        reference = node.get(key)
        if isinstance(reference, str) and not reference.startswith("#"):
            yield SchemaProblem(f"{path}.{key}", f"{reference!r} points outside this schema", ("#/...",))


def _objects(path: str, value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield path, value
        for key, child in value.items():
            yield from _objects(f"{path}.{key}", child)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _objects(f"{path}.{index}", child)


def _probe(name: str, validator: Any) -> list[SchemaProblem]:
    # a reference to nowhere, or to itself, shows only when something is validated
    try:
        samples: tuple[object, ...] = ({}, [], "", 0)
        for sample in samples:
            list(validator.iter_errors(sample))
    except RecursionError:
        return [SchemaProblem(name, "refers to itself without end")]
    except Exception as error:  # the library raises many kinds, and none of them may reach a submission
        return [SchemaProblem(name, f"cannot be used: {error}")]
    return []
