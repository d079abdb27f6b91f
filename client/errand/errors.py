"""What goes wrong between a program and Errand."""

from typing import Any


class ErrandError(Exception):
    """The base of all errors of this client."""


class Unreachable(ErrandError):
    """No answer came for as long as the client has patience. A task that was submitted continues."""


class Problem(ErrandError):
    """The server refused a request; `body` is its problem document (RFC 9457)."""

    def __init__(self, status: int, body: dict[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        self.body = body
        self.retry_after = retry_after
        lines = [f"{self.detail} ({status} {self.kind})"]
        lines += [f"  {one.get('pointer')}: {one.get('message')}" for one in self.errors]
        super().__init__("\n".join(lines))

    @property
    def kind(self) -> str:
        """The last part of its type, such as `not-found` or `not-terminal`."""
        return str(self.body.get("type") or "about:blank").rsplit(":", 1)[-1]

    @property
    def detail(self) -> str:
        return str(self.body.get("detail") or self.body.get("title") or "the server gave no reason")

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Each field that is wrong: `pointer`, `code`, `message`, perhaps `allowed`."""
        found = self.body.get("errors")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


class NotFound(Problem):
    """There is nothing by that id, or it belongs to another tenant."""


class NotAllowed(Problem):
    """The key is not valid, or lacks a right."""


class Conflict(Problem):
    """The current state does not allow it."""


class Invalid(Problem):
    """The request is not valid; `errors` names the fields."""


_KINDS: dict[int, type[Problem]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: Conflict,
    422: Invalid,
}


def problem_of(status: int, body: Any, text: str, retry_after: str | None) -> Problem:
    if not isinstance(body, dict):
        body = {"detail": text[:300] or "the server gave no reason"}
    pause = float(retry_after) if retry_after and retry_after.isdecimal() else None
    return _KINDS.get(status, Problem)(status, body, pause)
