"""`errand inbox`: what waits for people, and their answers."""

import sys
from collections.abc import Callable
from typing import Any

import click

from cli.client.api import Api
from cli.client.errors import Refused
from cli.options import remote
from cli.render.output import emit, note
from cli.render.requests import APPROVALS, Request, read_value, send, show


@click.command()
@click.option("--conversation", "conversation_id", help="Only of this conversation, its subagents included.")
@click.option("--answer/--list", "answering", default=None, help="Answer them in turn.  [default: on a terminal]")
@remote
def inbox(api: Api, conversation_id: str | None, answering: bool | None, as_json: bool) -> None:
    """Show what tasks wait for: questions, calls and plans to approve. On a terminal, answer them right there.

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
        note("nothing waits for you")
    if answering is None:
        answering = sys.stdin.isatty() and sys.stdout.isatty()
    for request in requests:
        show(request)
        if answering:
            _ask(api, request)
        click.echo()


def _all(api: Api, conversation_id: str | None) -> list[Request]:
    """Oldest first."""
    found: list[Request] = []
    cursor: str | None = None
    while True:
        page = api.get("/input-requests", conversation_id=conversation_id, cursor=cursor, limit=200)
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found[::-1]


def _ask(api: Api, request: Request) -> None:
    value = _approval() if request["kind"] in APPROVALS else _OTHERS.get(request["kind"], _question)(request)
    if value is None:
        note("left open")
        return
    try:
        send(api, request["session_id"], request["id"], value)
    except Refused as refused:  # the others can still be answered
        note(refused.message)


def _question(request: Request) -> Any:
    text = click.prompt("Your answer (empty: later)", default="", show_default=False)
    return read_value(request, text) if text else None


def _result(request: Request) -> dict[str, Any] | None:
    text = click.prompt("What it returned, words or JSON (empty: later)", default="", show_default=False)
    return {"result": read_value(request, text)} if text else None


def _variables(request: Request) -> dict[str, str] | None:
    """All of them or none: the task begins once it has them."""
    given: dict[str, str] = {}
    for name in request["details"]["variables"]:
        given[name] = click.prompt(f"{name} (empty: later)", default="", show_default=False)
        if not given[name]:
            return None
    return given


_OTHERS: dict[str, Callable[[Request], Any]] = {"external_result": _result, "missing_variables": _variables}


def _approval() -> dict[str, Any] | None:
    choice = click.prompt("Approve? yes, no, or later", type=click.Choice(["y", "n", "l"]), default="l")
    if choice == "l":
        return None
    if choice == "y":
        return {"approved": True}
    notes = click.prompt("Why not", default="", show_default=False)
    return {"approved": False} | ({"notes": notes} if notes else {})
