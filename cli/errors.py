"""Errors of the command line: an exit code for each cause, a sentence for people, JSON for scripts."""

from enum import IntEnum
from typing import IO, Any

import click
from errand import Problem

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
        return str(self.body.get("type") or "").rsplit(":", 1)[-1]

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


class Refused(CliError):
    exit_code = Exit.REFUSED


class Unreachable(CliError):
    exit_code = Exit.UNREACHABLE


class NotFinished(CliError):
    exit_code = Exit.NOT_FINISHED


def refusal(problem: Problem) -> CliError:
    """Turn a refusal of the server into an error for people."""
    kind = f" {problem.kind}" if problem.kind != "blank" else ""
    lines = [f"{problem.detail} ({problem.status}{kind})"]
    for one in problem.errors:
        text = f"{one.get('pointer') or 'request'}: {one.get('message') or one.get('code') or 'not valid'}"
        allowed = f" (allowed: {', '.join(map(str, one['allowed']))})" if one.get("allowed") else ""
        lines.append(f"  {text}{allowed}")
    if problem.status == 401:
        lines.append("Give a key with --key or ERRAND_API_KEY; `keys create NAME` makes one.")
    if problem.retry_after:
        lines.append(f"Try again in {problem.retry_after:g} s.")
    error = NotFoundError if problem.status == 404 else Refused
    return error("\n".join(lines), status=problem.status, body=problem.body)
