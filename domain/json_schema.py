"""JSON schemas that others write: whether one is safe to use, and where a value does not fit it.

The library's validators run `pattern` with a backtracking engine and do not limit their work. Ours use RE2, count every
step against one budget per check, and a schema is accepted only if it stays small when its references are written out.
`run_check` keeps checks off the event loop and off the threads that others share.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial, wraps
from itertools import islice
from typing import Any, NamedTuple, ParamSpec, TypeVar
from urllib.parse import unquote

from jsonschema import Draft3Validator, Draft4Validator, Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing import Registry
from referencing.jsonschema import specification_with

from domain.errors import Unavailable
from domain.ids import current_tenant
from domain.json_object import JsonObject
from domain.patterns import PatternError, check_pattern, matches

T = TypeVar("T")
P = ParamSpec("P")
MAX_BYTES = 65_536
MAX_EXPANDED = 20_000  # subschemas, when every reference is replaced by what it refers to
MAX_ERRORS = 20
COMPLEXITY = "complexity"  # the error's keyword if the budget is spent, or the library fails
WORK = 100_000  # a step is about the work of one keyword: 5 to 10 microseconds
SECONDS = 1.0  # of processor time, because a busy machine must not change what fits
SMALL_WORK = 1_000  # what may be done at once, on the event loop
SMALL_SECONDS = 0.02
_COMPARED = frozenset({"enum", "const", "required", "dependentRequired", "dependencies"})  # with all that they contain
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
_CHILDREN = frozenset(
    {"properties", "patternProperties", "additionalProperties", "propertyNames", "items"}
    | {"prefixItems", "additionalItems", "contains"}
)
# What the first two refer to can change. What the others look at is found with loops in which no budget can be spent.
_INSTEAD = {
    "$dynamicRef": "$ref",
    "$recursiveRef": "$ref",
    "unevaluatedItems": "additionalItems",
    "unevaluatedProperties": "additionalProperties",
}
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]


class SchemaProblem(NamedTuple):
    field: str
    message: str
    allowed: tuple[str, ...] = ()


class _TooMuchWork(Exception):
    """The budget of a check is spent."""


class _Budget:
    """What one check may still do, however many schemas and values it looks at."""

    def __init__(self, work: int, seconds: float, *, repeats: bool = False) -> None:
        self.left = work
        self.until = time.thread_time() + seconds
        self.repeats = repeats  # the check is repeated with a larger budget when this one is spent
        self.weights: dict[int, int] = {}  # of a schema's lists, which live as long as the check

    def spend(self, work: int) -> None:
        self.left -= work
        if self.left < 0 or time.thread_time() > self.until:
            raise _TooMuchWork()

    def weigh(self, value: Any) -> int:
        if (weight := self.weights.get(id(value))) is None:
            weight = self.weights[id(value)] = _count_values(value)
        return weight


_budget: ContextVar[_Budget | None] = ContextVar("_budget", default=None)
# Two, so that a long check does not keep another waiting; more would take processor time from the event loop.
_threads = ThreadPoolExecutor(2, "schema check")
MOST_LONG = 32  # checks that run or wait there: at most about 16 seconds of work
MOST_OF_TENANT = 4
_long = Counter[str]()  # by tenant


async def run_check(check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What the check returns. It calls the functions below, and may be called twice: a check that takes more than a few
    milliseconds is repeated on a thread that only checks use."""
    try:
        with _use_budget(_Budget(SMALL_WORK, SMALL_SECONDS, repeats=True)):
            return check(*args, **kwargs)
    except _TooMuchWork:
        tenant = current_tenant.get()
        if _long[tenant] >= MOST_OF_TENANT or _long.total() >= MOST_LONG:
            raise Unavailable("Too many JSON schemas are being checked.", retry_after=10) from None
        checked = asyncio.get_running_loop().run_in_executor(_threads, partial(_run_long, check, *args, **kwargs))
        _long[tenant] += 1
        checked.add_done_callback(lambda _: _long.subtract([tenant]))
        return await checked


def _run_long(check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    with _use_budget(_Budget(WORK, SECONDS)):
        return check(*args, **kwargs)


@contextmanager
def _use_budget(budget: _Budget | None = None) -> Iterator[_Budget]:
    """Without a budget: that of the check that runs, or a new one."""
    if budget is None and (running := _budget.get()) is not None:
        yield running
        return
    if budget is None and _in_event_loop():
        raise RuntimeError("a check would block the event loop: use run_check")
    token = _budget.set(budget := budget or _Budget(WORK, SECONDS))
    try:
        yield budget
    finally:
        _budget.reset(token)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def fits(schema: JsonObject, value: Any) -> bool:
    return not errors(schema, value, most=1)


def errors(schema: JsonObject, value: Any, most: int = MAX_ERRORS) -> list[ValidationError]:
    """The first errors of a value. The last one has the keyword COMPLEXITY if the check could not be completed."""
    found: list[ValidationError] = []
    with _use_budget() as budget:
        try:
            found.extend(islice(_validator(schema).iter_errors(value), most))
        # Also what the library raises for a number or a schema that it cannot work with: a caller would repeat what it
        # does before the check, such as a paid model call, without end.
        except Exception as error:
            if isinstance(error, _TooMuchWork) and budget.repeats:
                raise
            message = "the value cannot be checked against the schema, or only with too much work"
            found.append(ValidationError(message, validator=COMPLEXITY, validator_value=None))
    return found


def schema_problems(name: str, schema: JsonObject) -> list[SchemaProblem]:
    """List the faults of a schema; `name` is the field that holds it."""
    size = len(json.dumps(schema).encode())
    if size > MAX_BYTES:
        return [SchemaProblem(name, f"{size} bytes of JSON; at most {MAX_BYTES} are allowed")]
    with _use_budget() as budget:
        try:
            return _faults(name, schema)
        except (_TooMuchWork, RecursionError) as error:
            if isinstance(error, _TooMuchWork) and budget.repeats:
                raise
            return [SchemaProblem(name, "is nested too deeply, or takes too much work to check")]


def _faults(name: str, schema: JsonObject) -> list[SchemaProblem]:
    latest = Draft202012Validator.META_SCHEMA["$schema"]
    try:
        kind = _kind(schema)
    except (AttributeError, TypeError, ValueError):
        return [SchemaProblem(f"{name}.$schema", "is not an address", (latest,))]
    if kind is Draft3Validator:
        return [SchemaProblem(f"{name}.$schema", "draft 3 is too old", (latest,))]
    nodes = list(_objects(name, schema))
    problems = [problem for path, node in nodes for problem in _node_problems(path, node, root=node is schema)]
    return problems or _expansion_problems(name, kind, schema)


def _validator(schema: JsonObject) -> Any:
    # Without an address, so that references are those of this text.
    return _safe(_kind(schema))(_without(schema, "$schema", "$id", "id"))


def _kind(schema: JsonObject) -> Any:
    return validator_for(schema, default=Draft202012Validator)


def _without(schema: JsonObject, *keys: str) -> JsonObject:
    return {key: value for key, value in schema.items() if key not in keys}


@cache
def _safe(kind: Any) -> Any:
    """Our form of a validator class. What it validates with must have no $schema: where the library sees one it chooses
    its own class again."""
    replaced = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    keywords = {name: _count_keyword(name, replaced.get(name, function)) for name, function in kind.VALIDATORS.items()}
    return extend(kind, keywords)  # type: ignore[no-untyped-call]


@cache
def _dialect(kind: Any) -> Any:
    """A validator of schemas themselves."""
    texts = {uri: REGISTRY.contents(uri) for uri in REGISTRY}
    registry: Any = Registry().with_resources(
        (uri, specification_with(text["$schema"]).create_resource(_without(text, "$schema")))
        for uri, text in texts.items()
    )
    return _safe(kind)(_without(kind.META_SCHEMA, "$schema"), registry=registry.crawl())


def _count_keyword(name: str, keyword: Keyword) -> Keyword:
    @wraps(keyword)
    def counted(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        budget = _budget.get()
        assert budget is not None
        rules = budget.weigh(rule) if name in _COMPARED else _length(rule)
        budget.spend(1 + (rules + _length(instance)) // 8)
        if name in ("anyOf", "oneOf") and False in rule:  # each of them quotes the value without a keyword
            budget.spend(rule.count(False) * len(repr(instance)) // 100)
        for error in keyword(validator, rule, instance, schema) or ():
            # It is of this keyword. Its message quotes the value, and many of them keep the garbage collector busy.
            if not error.schema_path:
                budget.spend(20 + len(error.message) // 100)
            yield error

    return counted


def _length(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _count_values(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_count_values, inner))


def _matches(pattern: str, text: str) -> bool:
    _spend(1 + len(text) // 10)
    return matches(pattern, text)


def _spend(work: int) -> None:
    if (budget := _budget.get()) is not None:
        budget.spend(work)


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


def _dialect_problems(name: str, kind: Any, schema: JsonObject) -> list[SchemaProblem]:
    """Whether it is a schema at all. Formats are not checked, because "regex" would mean Python's dialect."""
    error = best_match(islice(_dialect(kind).iter_errors(schema), MAX_ERRORS))
    return [SchemaProblem(".".join([name, *map(str, error.absolute_path)]), error.message)] if error else []


def _expansion_problems(name: str, kind: Any, schema: JsonObject) -> list[SchemaProblem]:
    """References have to end, and what they refer to has to be small when it is written out and a schema too. A schema
    may contain itself in a part of the value, which is finite."""
    sizes, ended = dict[int, int](), dict[int, bool]()
    targets: dict[str, Any] = {}

    def inner(node: JsonObject) -> Iterator[tuple[bool, JsonObject]]:
        if "$ref" in node:
            if not isinstance(reference := node["$ref"], str):  # draft 4 does not describe this keyword
                raise LookupError(reference)
            if reference not in targets:
                targets[reference] = _target(schema, reference)
            if isinstance(targets[reference], dict):
                yield True, targets[reference]
        yield from _subschemas(node)

    def size(node: JsonObject) -> int:
        if id(node) not in sizes:
            _spend(1)
            sizes[id(node)] = 1  # so much counts a schema inside itself
            sizes[id(node)] = 1 + sum(size(one) for _, one in inner(node))
        return sizes[id(node)]

    def ends(node: JsonObject) -> bool:
        if id(node) not in ended:
            _spend(1)
            ended[id(node)] = False
            ended[id(node)] = all(ends(one) for in_place, one in inner(node) if in_place)
        return ended[id(node)]

    def every(node: JsonObject) -> Iterator[JsonObject]:
        _spend(1)
        yield node
        for _, one in _subschemas(node):
            yield from every(one)

    try:
        if size(schema) > MAX_EXPANDED:
            reason = f"has more than {MAX_EXPANDED:,} parts when its references are written out"
            return [SchemaProblem(name, reason)]
    except LookupError as error:
        return [SchemaProblem(name, f"cannot be used: {error.args[0]!r} refers to nothing", ("#/...",))]
    # not every dialect knows the place that a reference leads to
    roots, nodes = {name: schema}, {id(node): node for node in every(schema)}
    for reference, target in targets.items():
        if isinstance(target, dict) and id(target) not in nodes:
            roots[name + reference[1:].replace("/", ".")] = target
            nodes |= {id(node): node for node in every(target)}
    if not all(map(ends, nodes.values())):
        return [SchemaProblem(name, "refers to itself without end")]
    address = "id" if kind is Draft4Validator else "$id"
    if any(address in node for node in nodes.values() if node is not schema):
        return [SchemaProblem(name, f"only the whole schema may have an address ({address})")]
    return [problem for path, root in roots.items() for problem in _dialect_problems(path, kind, root)][:1]


def _subschemas(node: JsonObject) -> Iterator[tuple[bool, JsonObject]]:
    """The schemas inside a schema, and whether each is applied to the same value."""
    for keyword, rule in node.items():
        if keyword in _IN_PLACE or keyword in _CHILDREN:
            named = isinstance(rule, dict) and keyword in _BY_NAME
            for one in rule.values() if named else rule if isinstance(rule, list) else (rule,):
                if isinstance(one, dict):
                    yield keyword in _IN_PLACE, one


def _target(schema: JsonObject, reference: str) -> Any:
    """What a reference refers to. Raises LookupError with the reference."""
    found: Any = schema
    for part in unquote(reference[1:]).split("/")[1:]:
        try:
            found = found[int(part)] if isinstance(found, list) else found[part.replace("~1", "/").replace("~0", "~")]
        except (LookupError, ValueError, TypeError):
            raise LookupError(reference) from None
    if not isinstance(found, dict | bool):
        raise LookupError(reference)
    return found


def _node_problems(path: str, node: JsonObject, *, root: bool) -> Iterator[SchemaProblem]:
    _spend(1)
    reference = node.get("$ref")
    if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
        yield SchemaProblem(f"{path}.$ref", f"{reference!r} points outside this schema", ("#", "#/..."))
    for key, instead in _INSTEAD.items():
        if isinstance(node.get(key), str | bool | dict):
            yield SchemaProblem(f"{path}.{key}", f"takes too much work to check; use {instead}", (instead,))
    if not root and isinstance(node.get("$schema"), str):
        yield SchemaProblem(f"{path}.$schema", "only the whole schema may choose its dialect")
    patterns = [(f"{path}.pattern", node.get("pattern"))]
    if isinstance(properties := node.get("patternProperties"), dict):
        patterns += [(f"{path}.patternProperties", pattern) for pattern in properties]
    for field, pattern in patterns:
        if isinstance(pattern, str):
            _spend(len(pattern))
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
