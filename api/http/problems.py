"""Refusals and failures as RFC 9457 problems, which never repeat what the caller sent.

`type` is `urn:errand:problem:<code>`, and `title` the words of the code.
"""

import logging
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import asyncpg
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from domain.errors import ErrandError, Invalid, Refusal, Unavailable
from store.database import TRANSIENT_ERRORS

log = logging.getLogger("errand.api")
URN = "urn:errand:problem:"
_OF_STATUS = {400: "bad-request", 404: "not-found", 405: "method-not-allowed"}
_CLOSING = frozenset({"bad-request", "body-too-large", "request-timeout", "uri-too-long", "headers-too-large"})


class Finding(BaseModel, serialize_by_alias=True):
    """One error of a request; the value itself is never repeated."""

    pointer: str = Field(description="JSON pointer into the body, or the name of a parameter")
    code: str
    message: str
    allowed: list[Any] | None = Field(default=None, exclude_if=lambda value: value is None)
    place: str | None = Field(
        default=None, alias="in", exclude_if=lambda value: value is None, description="of a parameter: query or path"
    )


class Problem(BaseModel, extra="allow"):
    """An RFC 9457 problem."""

    type: str = Field(examples=["urn:errand:problem:validation"])
    title: str
    status: int
    detail: str
    instance: str = Field(description="the id of the request, as in X-Request-Id")
    errors: list[Finding] | None = None


class Unreadable(Refusal):
    """The request cannot be read."""

    def __init__(self, status: int, type: str, detail: str, **extra: Any) -> None:
        super().__init__(detail, type=type, **extra)
        self.status = status


class Unauthenticated(Refusal):
    """Send a valid key as `Authorization: Bearer ek_...`."""

    status = 401
    type = "unauthenticated"


def finding(
    pointer: str, code: str, message: str, allowed: Iterable[object] | None = None, place: str | None = None
) -> Finding:
    """One entry of a problem's `errors`; `place` says where a parameter was given."""
    listed = None if allowed is None else list(allowed)
    return Finding.model_validate(
        {"pointer": pointer, "code": code, "message": message, "allowed": listed, "in": place}
    )


def refuse(
    pointer: str,
    code: str,
    message: str,
    allowed: Iterable[object] | None = None,
    *,
    place: str | None = None,
    type: str = Invalid.type,
) -> Invalid:
    """A refusal for a single reason."""
    detail = None if type == Invalid.type else f"{title_of(type)}."
    return Invalid(detail, type=type, errors=[finding(pointer, code, message, allowed, place)])


@contextmanager
def pointers_moved(old: str, new: str) -> Iterator[None]:
    """Let findings below `old` point below `new`: where the part that is checked is in the caller's body."""
    try:
        yield
    except Invalid as error:
        for one in error.extra.get("errors", []):
            if one.pointer.startswith(old):
                one.pointer = new + one.pointer.removeprefix(old)
        raise


def problem(
    status: int, type: str, detail: str, request_id: str, headers: Mapping[str, str] | None = None, **extra: Any
) -> Response:
    body = {
        "type": URN + type,
        "title": title_of(type),
        "status": status,
        "detail": detail,
        "instance": request_id,
        **to_jsonable_python(extra),
    }
    all_headers = {"Cache-Control": "no-store", **(headers or {})}
    if type in _CLOSING:
        all_headers["Connection"] = "close"  # the next bytes on this connection may still belong to this request
    return JSONResponse(body, status, all_headers, media_type="application/problem+json")


def title_of(type: str) -> str:
    return type.replace("-", " ").capitalize()


def respond(error: Exception, request_id: str) -> Response:
    """The problem for an exception. An unexpected one shows only an opaque id."""
    if isinstance(error, ErrandError):
        return _of_ours(error, request_id)
    if isinstance(error, RequestValidationError | WebSocketRequestValidationError):
        errors = []
        for entry in error.errors():
            place, *path = entry["loc"]
            pointer = "".join(f"/{part}" for part in path)
            errors.append(finding(pointer, entry["type"], entry["msg"], choices(entry), place))
        return _of_ours(Invalid(errors=errors), request_id)
    if isinstance(error, HTTPException):
        type = _OF_STATUS.get(error.status_code, "bad-request")
        detail = {404: "There is nothing here.", 405: "Use one of the methods in Allow."}.get(error.status_code)
        return problem(error.status_code, type, detail or title_of(type), request_id, error.headers)
    if isinstance(error, asyncpg.UndefinedTableError | asyncpg.UndefinedFunctionError):
        return _of_ours(Unavailable("The database has no schema yet: run `python -m store.migrate`."), request_id)
    if isinstance(error, asyncpg.CharacterNotInRepertoireError | asyncpg.UntranslatableCharacterError):
        return _of_ours(Invalid("A text contains a NUL, which cannot be stored.", type="invalid-text"), request_id)
    if isinstance(error, asyncpg.DiskFullError):
        log.error("%s: the database's disk is full", request_id)
        return _of_ours(Unavailable("The disk of the database is full; free some space there."), request_id)
    if isinstance(error, TRANSIENT_ERRORS) and not isinstance(
        error, ValueError
    ):  # a value asyncpg cannot send is a bug
        log.warning("%s: the database is unreachable (%s)", request_id, type_name(error))
        return _of_ours(Unavailable("The database is unreachable or overloaded; try again shortly."), request_id)
    # The message may contain the caller's data, so only the place is logged.
    place = "".join(traceback.format_tb(error.__traceback__)[-4:])
    log.error("%s: %s\n%s", request_id, type_name(error), place)
    return problem(500, "internal", "Something went wrong; the log has an entry with the id in `instance`.", request_id)


def type_name(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _of_ours(error: ErrandError, request_id: str) -> Response:
    extra = dict(error.extra)
    headers: dict[str, str] = {}
    if isinstance(error, Unavailable):
        extra.setdefault("retry_after", 2)
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = 'Bearer realm="errand"'
    if "retry_after" in extra:
        headers["Retry-After"] = str(extra["retry_after"])
    return problem(error.status, error.type, error.detail, request_id, headers, **extra)


def choices(entry: Mapping[str, Any]) -> list[str] | None:
    """The values that an enumeration allows, taken from pydantic's message."""
    if entry["type"] not in ("enum", "literal_error"):
        return None
    # the only place where pydantic says them
    return str(entry["ctx"]["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
