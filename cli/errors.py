"""Errors of the command line: an exit code for each cause, a sentence for people, JSON for scripts."""

from enum import IntEnum
from typing import IO, Any

import click

from cli.render.output import clean, emit, json_wanted
from domain.json_object import JsonObject
from domain.sessions.session import Status


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    CANCELLED = 3
    NOT_FOUND = 4
    REFUSED = 5
    UNREACHABLE = 6
    NOT_FINISHED = 7
    DETACHED = 130


EXIT_CODES = """\b
Exit codes:
  0    success; the task completed
  1    the task failed, or the stack could not do it
  2    the command is wrong
  3    the task was cancelled
  4    nothing has that id or name
  5    the server refused the request
  6    the server cannot be reached
  7    the task has not finished yet
  130  detached with Ctrl-C; the task continues"""

_OF_STATUS: dict[str, Exit] = {Status.COMPLETED: Exit.OK, Status.FAILED: Exit.FAILED, Status.CANCELLED: Exit.CANCELLED}


def exit_of(status: str) -> Exit:
    """The exit code for a task's status."""
    return _OF_STATUS.get(status, Exit.NOT_FINISHED)


class CliError(click.ClickException):
    """An error to print on stderr. `status` and `body` are the server's, if the server refused the request."""

    exit_code = Exit.FAILED

    def __init__(self, message: str, *, status: int = 0, body: JsonObject | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = body or {}
        # now, because the command's context is gone when click shows the error
        self._as_json = json_wanted()

    @property
    def kind(self) -> str:
        """The kind of problem, such as `not-terminal`; empty if the server did not name one."""
        return kind_of(self.body)

    def show(self, file: IO[Any] | None = None) -> None:
        if self._as_json:
            emit({"detail": self.message, **self.body, "exit_code": int(self.exit_code)}, err=True)
        else:
            click.echo(click.style("Error: ", fg="red") + clean(self.message), err=True)


class NotFoundError(CliError):
    exit_code = Exit.NOT_FOUND


class Ambiguous(CliError):
    """What was typed fits several things; the body has the candidates."""

    exit_code = Exit.USAGE


class UsageAsJson(CliError):
    """A wrong command, for a script that asked for JSON."""

    exit_code = Exit.USAGE

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self._as_json = True


class Refused(CliError):
    exit_code = Exit.REFUSED


class Unreachable(CliError):
    exit_code = Exit.UNREACHABLE


class NotFinished(CliError):
    exit_code = Exit.NOT_FINISHED


def refusal(status: int, body: JsonObject, retry_after: float | None = None) -> CliError:
    """Turn an error response, a problem document of RFC 9457, into an error for people."""
    kind = NotFoundError if status == 404 else Refused
    return kind(_message(status, body, retry_after), status=status, body=body)


def _message(status: int, body: JsonObject, retry_after: float | None) -> str:
    lines = [str(body.get("detail") or body.get("title") or "the server gave no reason")]
    lines += ["  " + _finding(error) for error in body.get("errors") or []]
    if status == 401:
        lines.append("Give a key with --key or ERRAND_API_KEY; `keys create NAME` makes one.")
    if retry_after:
        lines.append(f"Try again in {retry_after:g} s.")
    kind = kind_of(body)
    lines[0] += f" ({status} {kind})" if kind and kind != "blank" else f" ({status})"
    return "\n".join(lines)


def kind_of(body: JsonObject) -> str:
    return str(body.get("type") or "").rsplit("/", 1)[-1].rsplit(":", 1)[-1]


def _finding(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    pointer = error.get("pointer") or "request"
    text = f"{pointer}: {error.get('message') or error.get('code') or 'not valid'}"
    allowed = error.get("allowed")
    return text + (f" (allowed: {', '.join(map(str, allowed))})" if allowed else "")
