"""What a request brings: its body, read within limits, parsed strictly and validated against a model. At the end: the
media type that its response may have."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from api.http.problems import Finding, Unreadable, choices, finding, refuse
from api.services import Services
from domain.errors import Invalid
from domain.json_object import JsonObject
from settings import Settings

# for the whole body, because a slow sender would reset a limit between two chunks for hours
BODY_SECONDS = 10.0
MAX_DEPTH = 64
MAX_MEMBERS = 10_000
# int() takes quadratic time, and refuses more than 4,300 digits with an error of its own
MAX_DIGITS = 100
# larger integers lose digits in every client that reads JSON numbers as doubles
MAX_INTEGER = 2**53 - 1
M = TypeVar("M", bound=BaseModel)
_JSON = re.compile(r"application/(?:[\w.-]+\+)?json", re.IGNORECASE)
_UNCLEAN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.\-]{1,64}")


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


@dataclass(frozen=True, eq=False)  # by identity: the framework puts dependencies in a dictionary
class JsonBody(Generic[M]):
    """The JSON body of a request as a model; `api.openapi` describes it. The checks raise their own refusals,
    `check_value` first."""

    model: type[M]
    optional: bool
    check_value: Callable[[Any, Settings], None] | None
    check_model: Callable[[M], None] | None
    examples: JsonObject  # for the document

    async def __call__(self, request: Request) -> M:
        settings = services_of(request).settings
        value, raw = await read_json(request, settings.max_body_bytes, optional=self.optional)
        if self.check_value is not None:
            self.check_value(value, settings)
        body = validate_body(self.model, value, raw)
        if self.check_model is not None:
            self.check_model(body)
        return body


def json_body(
    model: type[M],
    *,
    optional: bool = False,
    check_value: Callable[[Any, Settings], None] | None = None,
    check_model: Callable[[M], None] | None = None,
    **examples: Any,
) -> M:
    """A dependency; `example` or `examples` are for the document."""
    dependency: M = Depends(JsonBody(model, optional, check_value, check_model, examples))
    return dependency


def check_input_length(value: Any, settings: Settings) -> None:
    """Check a string in the field `input` against its own limit, which has its own problem type."""
    given, limit = value.get("input") if isinstance(value, dict) else None, settings.max_input_chars
    if isinstance(given, str) and len(given) > limit:
        raise Unreadable(413, "input-too-long", f"The input may have {limit} characters.", limit=limit)


async def read_json(request: Request, limit: int, *, optional: bool = False) -> tuple[Any, bytes]:
    """The parsed value and its bytes."""
    raw = await read_json_text(request, limit, optional=optional)
    return parse_json(raw), raw


async def read_json_text(request: Request, limit: int, *, optional: bool = False) -> bytes:
    """A body that is said to be JSON. An optional one that was left out is an empty object."""
    kind = media_type(request)
    if optional and not kind and not (raw := await read_body(request, limit)):
        return b"{}"
    if not _JSON.fullmatch(kind):
        raise Unreadable(415, "unsupported-media-type", "Send application/json.", allowed=["application/json"])
    raw = await read_body(request, limit)
    return b"{}" if optional and not raw else raw


async def read_body(request: Request, limit: int, seconds: float | None = None) -> bytes:
    """The whole body. It is refused as soon as it is too large, too slow or has a Content-Encoding."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    # the limit counts bytes as they arrive, and a few compressed ones can become gigabytes
    if encoding != "identity":
        raise Unreadable(415, "unsupported-encoding", "Send the body without a Content-Encoding.")
    announced = request.headers.get("content-length", "")
    # an early refusal only; what arrives is counted, too, because the announcement may be missing or false
    if announced.isdecimal() and int(announced[:20]) > limit:
        raise too_large(limit)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS if seconds is None else seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise too_large(limit)
                chunks.append(chunk)
    except TimeoutError:
        raise Unreadable(408, "request-timeout", "The body did not arrive in time.") from None
    return b"".join(chunks)


def too_large(limit: int) -> Unreadable:
    return Unreadable(413, "body-too-large", f"At most {limit} bytes are allowed here.", limit=limit)


def media_type(request: Request) -> str:
    """The media type without its parameters, in lower case; a charset other than UTF-8 is refused."""
    kind, *parameters = request.headers.get("content-type", "").split(";")
    for parameter in parameters:
        name, _, value = parameter.strip().partition("=")
        if name.strip().lower() == "charset" and value.strip('" ').lower() not in ("utf-8", "utf8", "us-ascii"):
            raise Unreadable(415, "unsupported-media-type", "Text must be UTF-8.", allowed=["utf-8"])
    return kind.strip().lower()


def validate_body(model: type[M], value: Any, raw: bytes) -> M:
    """The model of a strictly parsed value. Findings point into the value and never repeat what was sent."""
    try:
        # From the bytes and not from `value`: strict mode accepts dates and enums as text only in JSON.
        return model.model_validate_json(raw, strict=True)
    except ValidationError as error:
        entries = error.errors(include_url=False, include_input=False)
        found = [_of_entry(model, value, entry) for entry in entries]
        unique = {(entry.pointer, entry.code): entry for entry in found}.values()
        # if a text or an object is allowed and one of them has an error, drop the error that it is not the other
        nearer = {entry.pointer for entry in unique if not entry.code.endswith("_type")}
        nearer |= {entry.pointer[:end] for entry in unique for end, sign in enumerate(entry.pointer) if sign == "/"}
        nearest = [one for one in unique if not one.code.endswith("_type") or one.pointer not in nearer]
        raise Invalid(errors=nearest[:50]) from None


def _of_entry(model: type[BaseModel], value: Any, entry: Mapping[str, Any]) -> Finding:
    path = _path(value, entry)
    pointer = ""
    for part in path:
        pointer = join_pointer(pointer, str(part))
    if entry["type"] == "extra_forbidden":
        return finding(pointer, "unknown_field", "there is no such field", _fields_at(model, path[:-1]))
    if entry["type"] == "union_tag_invalid":  # pydantic's own message would repeat the caller's value
        tags = str(entry["ctx"]["expected_tags"]).replace("'", "").split(", ")
        kind = str(entry["ctx"]["discriminator"]).strip("'")
        return finding(join_pointer(pointer, kind), "enum", "there is no such kind", tags)
    if entry["type"] == "union_tag_not_found":
        kind = str(entry["ctx"]["discriminator"]).strip("'")
        return finding(join_pointer(pointer, kind), "missing", "this field is required")
    if entry["type"] == "missing":
        return finding(pointer, "missing", "this field is required")
    return finding(pointer, entry["type"], entry["msg"], choices(entry))


def _path(value: Any, entry: Mapping[str, Any]) -> list[str | int]:
    """The part of pydantic's location that exists in the value: it also names the branches of unions."""
    path: list[str | int] = []
    steps: Sequence[str | int] = entry["loc"]
    for place, part in enumerate(steps):
        inside_object = isinstance(value, dict) and part in value
        inside_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if inside_object or inside_list:
            value = value[part]
            path.append(part)
        elif entry["type"] == "missing" and place == len(steps) - 1:
            path.append(part)
    return path


def _fields_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str] | None:
    """The allowed field names at a path; None if several models are possible."""
    for part in path:
        if isinstance(part, str) and part in model.model_fields:
            annotation = model.model_fields[part].annotation
            candidates = (annotation, *get_args(annotation))
            models = [one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)]
            if not models:
                return None
            model = models[-1]
    return sorted(model.model_fields)


# Strict JSON: UTF-8, unique keys, finite numbers, bounded depth and size, no control characters.


def parse_json(raw: bytes) -> Any:
    """The parsed value; invalid JSON is refused with the reason."""
    try:
        value = json.loads(
            decode_text(raw),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_integer,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Unreadable(400, "malformed-json", f"The body is not valid JSON ({where}).") from None
    except RecursionError:
        raise _too_complex() from None
    _check_value(value)
    return value


def decode_text(raw: bytes) -> str:
    """UTF-8 text without a byte order mark."""
    if raw.startswith(b"\xef\xbb\xbf") or b"\x00" in raw[:4]:  # a byte order mark, UTF-16 or UTF-32
        raise Unreadable(400, "invalid-encoding", "The body must be UTF-8 without a byte order mark.")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(400, "invalid-encoding", f"The body is not UTF-8 (byte {error.start}).") from None


def check_text(text: str, pointer: str) -> str:
    """The text; refused if PostgreSQL could not store it, which allows neither NUL nor lone surrogates."""
    if _UNCLEAN.search(text):
        raise refuse(pointer, "control_character", "no control characters, no surrogates", type="invalid-text")
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


def _check_value(root: Any) -> None:
    """Check depth, members, text and integers of the whole value, without recursion."""
    members = 0
    todo: list[tuple[Any, str, int]] = [(root, "", 0)]
    while todo:
        value, pointer, depth = todo.pop()
        if isinstance(value, str):
            check_text(value, pointer)
        elif isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise refuse(pointer, "integer_range", f"integers must be within ±{MAX_INTEGER}")
        elif isinstance(value, dict | list):
            members += len(value)
            if depth >= MAX_DEPTH or members > MAX_MEMBERS:
                raise _too_complex()
            todo += [(child, place, depth + 1) for place, child in _children(value, pointer)]


def _children(value: JsonObject | list[Any], pointer: str) -> list[tuple[str, Any]]:
    if isinstance(value, list):
        return [(f"{pointer}/{index}", child) for index, child in enumerate(value)]
    for key in value:
        check_text(key, pointer)
    return [(join_pointer(pointer, key), child) for key, child in value.items()]


def join_pointer(pointer: str, key: str) -> str:
    """A JSON pointer to the member, or to its parent if the key is too unusual to be repeated."""
    return f"{pointer}/{key}" if _PLAIN_KEY.fullmatch(key) else pointer


def choose_media_type(request: Request, *offers: str) -> str:
    """The first of the offers that the caller accepts. 406 if it accepts none of them."""
    accepted = [part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")]
    for wanted in filter(None, accepted if any(accepted) else ["*/*"]):
        for offer in offers:
            if wanted in (offer, offer.partition("/")[0] + "/*", "*/*"):
                return offer
    raise Unreadable(406, "not-acceptable", "The response has other media types.", allowed=list(offers))
