"""The errors of this client."""

from typing import Any


class ErrandError(Exception):
    """The base of all errors of this client."""


class Unreachable(ErrandError):
    """There was no answer within the client's patience. A submitted task continues."""


class NoStack(Unreachable):
    """No address is known: none was given, and no stack runs here."""


class Unexpected(ErrandError):
    """The server answers, but not as this version does: another program listens there, or an API of another version."""


class Problem(ErrandError):
    """The server refused a request; `body` is its problem document (RFC 9457)."""

    def __init__(self, status: int, body: dict[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        self.body = body
        self.retry_after = retry_after  # seconds, if the server says when to ask again
        lines = [f"{self.detail} ({status} {self.kind})"]
        lines += [f"  {one.get('pointer')}: {one.get('message')}" for one in self.errors]
        super().__init__("\n".join(lines))

    @property
    def kind(self) -> str:
        """The last part of its type, such as `not-found` or `not-terminal`."""
        return str(self.body.get("type") or "about:blank").rsplit("/", 1)[-1].rsplit(":", 1)[-1]

    @property
    def detail(self) -> str:
        return str(self.body.get("detail") or self.body.get("title") or "the server gave no reason")

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Each invalid field: `pointer`, `code`, `message`, and sometimes `allowed`."""
        found = self.body.get("errors")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


class NotFound(Problem):
    """Nothing has that id, or it belongs to another tenant."""


class NotAllowed(Problem):
    """The key is not valid, or lacks a right."""


class Conflict(Problem):
    """The current state does not allow the request."""


class Invalid(Problem):
    """The request is not valid; `errors` names the fields."""


class RateLimited(Problem):
    """Too many requests, or no room for a further task, for longer than the client's patience; see `retry_after`."""


_KINDS: dict[int, type[Problem]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: Conflict,
    422: Invalid,
    429: RateLimited,
}


def problem_of(status: int, body: Any, text: str, retry_after: str | None) -> Problem:
    if not isinstance(body, dict):
        body = {"detail": text[:300] or "the server gave no reason"}
    pause = float(retry_after) if retry_after and retry_after.isdecimal() else None
    return _KINDS.get(status, Problem)(status, body, pause)
