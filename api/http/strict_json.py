"""A strict JSON parser: UTF-8, unique keys, finite numbers, bounded depth and size, no control characters."""

import json
import re
from typing import Any

from api.http.problems import Unreadable, finding
from domain.errors import Invalid
from domain.json_object import JsonObject

MAX_DEPTH = 64
MAX_MEMBERS = 10_000
# int() takes quadratic time, and refuses more than 4,300 digits with an error of its own
MAX_DIGITS = 100
# larger integers lose digits in every client that reads JSON numbers as doubles
MAX_INTEGER = 2**53 - 1

_UNCLEAN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.\-]{1,64}")


def parse(raw: bytes) -> Any:
    """The parsed value; invalid JSON is refused with the reason."""
    try:
        value = json.loads(
            decode(raw), object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Unreadable(400, "malformed-json", f"The body is not valid JSON ({where}).") from None
    except RecursionError:
        raise _too_complex() from None
    _walk(value)
    return value


def decode(raw: bytes) -> str:
    """UTF-8 text without a byte order mark."""
    if raw.startswith(b"\xef\xbb\xbf") or b"\x00" in raw[:4]:  # a byte order mark, UTF-16 or UTF-32
        raise Unreadable(400, "invalid-encoding", "The body must be UTF-8 without a byte order mark.")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(400, "invalid-encoding", f"The body is not UTF-8 (byte {error.start}).") from None


def clean(text: str, pointer: str) -> str:
    """The text; refused if PostgreSQL could not store it, which allows neither NUL nor lone surrogates."""
    if _UNCLEAN.search(text):
        found = finding(pointer, "control_character", "no control characters but tab and line ends, no lone surrogates")
        raise Invalid("The text contains characters that are not allowed.", type="invalid-text", errors=[found])
    return text


def _too_complex() -> Unreadable:
    detail = f"At most {MAX_DEPTH} levels, {MAX_MEMBERS} members and {MAX_DIGITS} digits in a number are allowed."
    return Unreadable(400, "json-too-complex", detail)


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    value = dict(pairs)
    # parsers disagree about which one counts, so that a proxy could have checked the other value
    if len(value) < len(pairs):
        raise Unreadable(400, "json-duplicate-key", "An object contains the same key twice.")
    return value


def _constant(_: str) -> Any:
    raise _not_finite()


def _not_finite() -> Unreadable:
    return Unreadable(400, "json-non-finite", "NaN, Infinity and numbers beyond double precision are not allowed.")


def _float(text: str) -> float:
    if len(text) > MAX_DIGITS:
        raise _too_complex()
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _not_finite()
    return value


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise _too_complex()
    return int(text)


def _walk(root: Any) -> None:
    """Check depth, members, text and integers of the whole value, without recursion."""
    members = 0
    todo: list[tuple[Any, str, int]] = [(root, "", 0)]
    while todo:
        value, pointer, depth = todo.pop()
        if isinstance(value, str):
            clean(value, pointer)
        elif isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise Invalid(errors=[finding(pointer, "integer_range", f"integers must be within ±{MAX_INTEGER}")])
        elif isinstance(value, dict | list):
            members += len(value)
            if depth >= MAX_DEPTH or members > MAX_MEMBERS:
                raise _too_complex()
            todo += [(child, place, depth + 1) for place, child in _children(value, pointer)]


def _children(value: JsonObject | list[Any], pointer: str) -> list[tuple[str, Any]]:
    if isinstance(value, list):
        return [(f"{pointer}/{index}", child) for index, child in enumerate(value)]
    for key in value:
        clean(key, pointer)
    return [(join(pointer, key), child) for key, child in value.items()]


def join(pointer: str, key: str) -> str:
    """A JSON pointer to the member, or to its parent if the key is too unusual to be repeated."""
    return f"{pointer}/{key}" if _PLAIN_KEY.fullmatch(key) else pointer
