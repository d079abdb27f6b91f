"""Request bodies: read within limits, parsed strictly, then validated against a model."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from api.http import strict_json
from api.http.problems import Unreadable, choices, finding
from api.schemas.problems import Finding
from api.services import services_of
from domain.errors import Invalid
from settings import Settings

# for the whole body, because a slow sender would reset a limit between two chunks for hours
BODY_SECONDS = 10.0
M = TypeVar("M", bound=BaseModel)

_JSON = re.compile(r"application/(?:[\w.-]+\+)?json", re.IGNORECASE)


def json_body(
    model: type[M],
    *,
    optional: bool = False,
    check_value: Callable[[Any, Settings], None] | None = None,
    check_model: Callable[[M], None] | None = None,
) -> M:
    """A dependency: the request's JSON body as a model. The checks raise their own refusals, `check_value` first."""

    async def read(request: Request) -> M:
        settings = services_of(request).settings
        value, raw = await read_json(request, settings.max_body_bytes, optional=optional)
        if check_value is not None:
            check_value(value, settings)
        body = validated(model, value, raw)
        if check_model is not None:
            check_model(body)
        return body

    dependency: M = Depends(read)
    return dependency


def check_input_length(value: Any, settings: Settings) -> None:
    """Check a string in the field `input` against its own limit, which has its own problem type."""
    given, limit = value.get("input") if isinstance(value, dict) else None, settings.max_input_chars
    if isinstance(given, str) and len(given) > limit:
        raise Unreadable(413, "input-too-long", f"The input may have {limit} characters.", limit=limit)


async def read(request: Request, limit: int, seconds: float | None = None) -> bytes:
    """The whole body. It is refused as soon as it is too large, too slow or has a Content-Encoding."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    # the limit counts bytes as they arrive, and a few compressed ones can become gigabytes
    if encoding != "identity":
        raise Unreadable(415, "unsupported-encoding", "Send the body without a Content-Encoding.")
    announced = request.headers.get("content-length", "")
    # an early refusal only; what arrives is counted, too, because the announcement may be missing or false
    if announced.isdecimal() and int(announced[:20]) > limit:
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
    """The parsed value and its bytes. An optional body that was left out is an empty object."""
    kind = media_type(request)
    if optional and not kind and not (raw := await read(request, limit)):
        return {}, b"{}"
    if not _JSON.fullmatch(kind):
        raise Unreadable(415, "unsupported-media-type", "Send application/json.", allowed=["application/json"])
    raw = await read(request, limit)
    if optional and not raw:
        return {}, b"{}"
    return strict_json.parse(raw), raw


def validated(model: type[M], value: Any, raw: bytes) -> M:
    """The model of a strictly parsed value. Findings point into the value and never repeat what was sent."""
    try:
        # From the bytes and not from `value`: strict mode accepts dates and enums as text only in JSON.
        return model.model_validate_json(raw, strict=True)
    except ValidationError as error:
        entries = error.errors(include_url=False, include_input=False)
        found = [_of_entry(model, value, entry) for entry in entries]
        unique = {(entry.pointer, entry.code): entry for entry in found}
        raise Invalid(errors=_nearest(list(unique.values()))[:50]) from None


def _nearest(found: list[Finding]) -> list[Finding]:
    """If a text or an object is allowed and one of them has an error, drop the error that it is not the other."""
    own = [entry.pointer for entry in found if not entry.code.endswith("_type")]
    deeper = [entry.pointer for entry in found]
    return [
        entry
        for entry in found
        if not entry.code.endswith("_type")
        or not (entry.pointer in own or any(one.startswith(f"{entry.pointer}/") for one in deeper))
    ]


def _too_large(limit: int) -> Unreadable:
    return Unreadable(413, "body-too-large", f"At most {limit} bytes are allowed here.", limit=limit)


def _of_entry(model: type[BaseModel], value: Any, entry: Mapping[str, Any]) -> Finding:
    path = _path(value, entry)
    pointer = ""
    for part in path:
        pointer = strict_json.join(pointer, str(part))
    if entry["type"] == "extra_forbidden":
        return finding(pointer, "unknown_field", "there is no such field", _fields_at(model, path[:-1]))
    if entry["type"] == "union_tag_invalid":  # pydantic's own message would repeat the caller's value
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
