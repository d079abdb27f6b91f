"""`errand variables`: the variables of threads, and subagents that wait for values."""

import sys
from typing import Any

import click

from cli.api import Api, segment
from cli.errors import NotFoundError
from cli.ids import ConversationIdType, ThreadIdType
from cli.options import ListGroup, remote
from cli.render.output import PROGRAM, emit, note, one_line, table
from domain.json_object import JsonObject


@click.group(cls=ListGroup)
def variables() -> None:
    """List subagents that wait for variables, give them values, and show or set the variables of a thread.

    \b
    Examples:
      ./errand variables
      ./errand variables give REQUEST
      ./errand variables give REQUEST REGION=north DEPLOY_TOKEN=-    (- is read from the standard input)
      ./errand variables show THREAD
      ./errand variables set THREAD REGION=north
      ./errand variables shared REGION=north --text    (of all threads)
    """


@variables.command("list")
@click.option("--conversation", "conversation_id", type=ConversationIdType(), help="Only of this conversation.")
@remote
def list_requests(api: Api, conversation_id: str | None, as_json: bool) -> None:
    """List the subagents that wait for values of their variables."""
    found = [*api.items("/variable-requests", conversation_id=conversation_id)]
    if as_json:
        emit({"items": found})
    elif not found:
        note("no subagent is waiting for variables")
    else:
        rows = [
            [one["request_id"], f"{one['name']} ({one['agent']})", one["thread_id"], ", ".join(one["missing"])]
            for one in found
        ]
        table(["REQUEST", "SUBAGENT", "OF THREAD", "MISSING"], [[one_line(cell) for cell in row] for row in rows])
        note(f"`{PROGRAM} variables give REQUEST` asks for the values and starts the subagent.")


@variables.command()
@click.argument("request_id")
@click.argument("values", nargs=-1, metavar="[NAME=VALUE]...")
@remote
def give(api: Api, request_id: str, values: tuple[str, ...], as_json: bool) -> None:
    """Set the values that a subagent waits for, and start it. Missing values are asked for, secrets without echo."""
    request = _request(api, request_id)
    given = _parse(values)
    kinds = {one["name"]: one for one in request["required"]}
    for name in (name for name in request["missing"] if name not in given):
        secret = kinds[name]["kind"] == "secret"
        # prompts go to stderr, so that stdout stays clean for --json
        given[name] = click.prompt(f"{name} ({one_line(kinds[name]['description'])})", hide_input=secret, err=True)
    path = f"/threads/{segment(request['thread_id'])}/variables/{segment(request['request_id'])}"
    answer = api.post(path, {"variables": given})
    if as_json:
        emit(answer)
    elif answer["reference"]:
        note(f"Started: `{PROGRAM} attach {answer['reference']}` shows it.")
    else:
        note("Accepted; the subagent starts soon.")


@variables.command()
@click.argument("thread_id", type=ThreadIdType())
@remote
def show(api: Api, thread_id: str, as_json: bool) -> None:
    """Show the variables of a thread: of a conversation, or of a subagent by its reference. Secrets are not shown."""
    answer = api.get(f"/threads/{segment(thread_id)}/variables")
    emit(answer) if as_json else _show(answer)


@variables.command("set")
@click.argument("thread_id", type=ThreadIdType())
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@remote
def set_values(api: Api, thread_id: str, values: tuple[str, ...], as_json: bool) -> None:
    """Set variables of a thread, and of the subagents below it that inherit them. NAME=- reads the standard input."""
    answer = api.ask("PUT", f"/threads/{segment(thread_id)}/variables", json={"variables": _parse(values)})
    emit(answer) if as_json else _show(answer)


@variables.command()
@click.argument("values", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--text", is_flag=True, help="The values are not secret: models may see them.")
@click.option("--remove", "removed", multiple=True, metavar="NAME", help="Remove this one.")
@remote
def shared(api: Api, values: tuple[str, ...], text: bool, removed: tuple[str, ...], as_json: bool) -> None:
    """List, set or remove values for all threads without their own values. NAME=- reads the standard input."""
    for name in removed:
        api.request("DELETE", f"/variables/{segment(name)}")
    if values:
        api.request("PUT", "/variables", json={"variables": _parse(values), "kind": "text" if text else "secret"})
    answer = api.get("/variables")
    if as_json:
        emit(answer)
    elif not answer["items"]:
        note("there are no variables of all threads")
    else:
        rows = [
            [one["name"], "(secret)" if one["value"] is None else one["value"], one["updated_by"]]
            for one in answer["items"]
        ]
        table(["VARIABLE", "VALUE", "SET BY"], [[one_line(cell, 80) for cell in row] for row in rows])


def _request(api: Api, request_id: str) -> JsonObject:
    """Find a request by the beginning of its id."""
    found = [one for one in api.items("/variable-requests") if one["request_id"].startswith(request_id.lower())]
    if len(found) != 1:
        why = f"several requests begin with {request_id!r}" if found else f"no open request begins with {request_id!r}"
        raise NotFoundError(f"{why}; `{PROGRAM} variables` lists them")
    return dict(found[0])


def _parse(values: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for one in values:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{name!r}: write NAME=VALUE, or NAME=- for a value from the standard input")
        if name in given:
            raise click.UsageError(f"{name} is given twice")
        given[name] = value
    # from the standard input, because other accounts can see the arguments of a process
    piped = [name for name, value in given.items() if value == "-"]
    if len(piped) > 1:
        raise click.UsageError("only one value can come from the standard input")
    return {name: sys.stdin.read().removesuffix("\n") if name in piped else value for name, value in given.items()}


def _show(answer: JsonObject) -> None:
    def show_value(one: JsonObject) -> str:
        if one["source"] is None:
            return "(none)"
        return "(secret)" if one["value"] is None else one_line(one["value"], 80)

    rows: list[list[Any]] = [
        [one_line(one["name"]), show_value(one), one["source"] or "", one_line(one["description"], 60)]
        for one in answer["variables"]
    ]
    table(["VARIABLE", "VALUE", "FROM", "DESCRIPTION"], rows)
