"""Request bodies: bounded while they are read, of the right media type, then checked against a model."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from fastapi import Request
from pydantic import BaseModel, ValidationError

from api.http import strict_json
from api.http.problems import Unreadable, choices, finding
from domain.errors import Invalid

BODY_SECONDS = 10.0
M = TypeVar("M", bound=BaseModel)

_JSON = re.compile(r"application/(?:[\w.-]+\+)?json", re.IGNORECASE)


async def read(request: Request, limit: int, seconds: float | None = None) -> bytes:
    """The whole body, or a refusal as soon as it is too large, too slow or encoded."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise Unreadable(415, "unsupported-encoding", "Send the body without a Content-Encoding.")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS if seconds is None else seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
    except TimeoutError:
        raise Unreadable(408, "request-timeout", "The body did not arrive in time.") from None
    return b"".join(chunks)


def media_type(request: Request) -> str:
    """The media type without its parameters, in lower case; a charset other than UTF-8 is refused."""
    kind, *parameters = request.headers.get("content-type", "").split(";")
    for parameter in parameters:
        name, _, value = parameter.strip().partition("=")
        if name.strip().lower() == "charset" and value.strip('" ').lower() not in ("utf-8", "utf8", "us-ascii"):
            raise Unreadable(415, "unsupported-media-type", "Text must be UTF-8.", allowed=["utf-8"])
    return kind.strip().lower()


async def read_json(request: Request, limit: int, *, optional: bool = False) -> tuple[Any, bytes]:
    """The value and its bytes; an optional body may be left out, and is an empty object then."""
    kind = media_type(request)
    if optional and not kind and not (raw := await read(request, limit)):
        return {}, b"{}"
    if not _JSON.fullmatch(kind):
        raise Unreadable(415, "unsupported-media-type", "Send application/json.", allowed=["application/json"])
    raw = await read(request, limit)
    if optional and not raw:
        return {}, b"{}"
    return strict_json.parse(raw), raw


async def read_model(request: Request, model: type[M], limit: int, *, optional: bool = False) -> M:
    """The body as a model, or a refusal with one finding for each field that is wrong."""
    value, raw = await read_json(request, limit, optional=optional)
    return check(model, value, raw)


def check(model: type[M], value: Any, raw: bytes) -> M:
    """The model made of a value that was parsed strictly; findings point into it and never repeat it."""
    try:
        return model.model_validate_json(raw, strict=True)
    except ValidationError as error:
        entries = error.errors(include_url=False, include_input=False)
        found = [_of_entry(model, value, entry) for entry in entries]
        unique = {(entry["pointer"], entry["code"]): entry for entry in found}
        raise Invalid(errors=_nearest(list(unique.values()))[:50]) from None


def _nearest(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where a text or an object would do and the object is wrong inside, that it is no text helps nobody."""
    deeper = [entry["pointer"] for entry in found]
    return [
        entry
        for entry in found
        if not entry["code"].endswith("_type") or not any(one.startswith(f"{entry['pointer']}/") for one in deeper)
    ]


def _too_large(limit: int) -> Unreadable:
    return Unreadable(413, "body-too-large", f"At most {limit} bytes are allowed here.", limit=limit)


def _of_entry(model: type[BaseModel], value: Any, entry: Mapping[str, Any]) -> dict[str, Any]:
    path = _path(value, entry)
    pointer = ""
    for part in path:
        pointer = strict_json.join(pointer, str(part))
    if entry["type"] == "extra_forbidden":
        return finding(pointer, "unknown_field", "there is no such field", _fields_at(model, path[:-1]))
    if entry["type"] == "union_tag_invalid":  # pydantic's own words would repeat what was sent
        tags = str(entry["ctx"]["expected_tags"]).replace("'", "").split(", ")
        kind = str(entry["ctx"]["discriminator"]).strip("'")
        return finding(strict_json.join(pointer, kind), "enum", "there is no such kind", tags)
    if entry["type"] == "union_tag_not_found":
        kind = str(entry["ctx"]["discriminator"]).strip("'")
        return finding(strict_json.join(pointer, kind), "missing", "this field is required")
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
    """None where several forms are possible."""
    for part in path:
        if isinstance(part, str) and part in model.model_fields:
            annotation = model.model_fields[part].annotation
            candidates = (annotation, *get_args(annotation))
            models = [one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)]
            if not models:
                return None
            model = models[-1]
    return sorted(model.model_fields)
