"""`errand inbox`: list open input requests, and answer them."""

import sys
from collections.abc import Callable
from typing import Any

import click

from cli.client.api import Api
from cli.client.models import RequestInfo, parse
from cli.commands.answer import send_answer, typed_value
from cli.errors import Refused
from cli.options import remote
from cli.render.input_requests import show_request
from cli.render.output import emit, note
from domain.sessions.input_request import APPROVALS


@click.command()
@click.option("--conversation", "conversation_id", help="Only of this conversation, including its subagents.")
@click.option("--answer/--list", "answering", default=None, help="Answer them one by one.  [default: on a terminal]")
@remote
def inbox(api: Api, conversation_id: str | None, answering: bool | None, as_json: bool) -> None:
    """List what tasks are waiting for: questions, calls and plans to approve. On a terminal, ask for the answers.

    \b
    Examples:
      ./errand inbox
      ./errand inbox --json | jq -r '.items[].question'
    """
    requests = _all(api, conversation_id)
    if as_json:
        emit({"items": requests})
        return
    if not requests:
        note("nothing is waiting for you")
    if answering is None:
        answering = sys.stdin.isatty() and sys.stdout.isatty()
    for request in (parse(RequestInfo, answer) for answer in requests):
        show_request(request)
        if answering:
            _ask(api, request)
        click.echo()


def _all(api: Api, conversation_id: str | None) -> list[dict[str, Any]]:
    """The open requests, oldest first."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = api.get("/input-requests", conversation_id=conversation_id, cursor=cursor, limit=200)
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found[::-1]


def _ask(api: Api, request: RequestInfo) -> None:
    value = _approval() if request.kind in APPROVALS else _PROMPTS.get(request.kind, _question)(request)
    if value is None:
        note("left open")
        return
    try:
        send_answer(api, request.session_id, request.id, value)
    except Refused as refused:  # the others can still be answered
        note(refused.message)


def _question(request: RequestInfo) -> Any:
    text = click.prompt("Your answer (empty: later)", default="", show_default=False)
    return typed_value(request, text) if text else None


def _result(request: RequestInfo) -> dict[str, Any] | None:
    text = click.prompt("The result, as text or JSON (empty: later)", default="", show_default=False)
    return {"result": typed_value(request, text)} if text else None


def _variables(request: RequestInfo) -> dict[str, str] | None:
    """Ask for all of them: the task starts once it has every one."""
    given: dict[str, str] = {}
    for name in request.details.variables:
        given[name] = click.prompt(f"{name} (empty: later)", default="", show_default=False)
        if not given[name]:
            return None
    return given


_PROMPTS: dict[str, Callable[[RequestInfo], Any]] = {"external_result": _result, "missing_variables": _variables}


def _approval() -> dict[str, Any] | None:
    choice = click.prompt("Approve? yes, no, or later", type=click.Choice(["y", "n", "l"]), default="l")
    if choice == "l":
        return None
    if choice == "y":
        return {"approved": True}
    notes = click.prompt("Why not", default="", show_default=False)
    return {"approved": False} | ({"notes": notes} if notes else {})
