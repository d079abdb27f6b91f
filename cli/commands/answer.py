"""`errand answer`: answer a task's question."""

import json
from typing import Any

import click

from cli.answering import find_request, post_answer, typed_value
from cli.api import Api
from cli.ids import resolve
from cli.options import remote
from cli.render.output import PROGRAM, emit, note

MOST_ARGUMENTS = 3


@click.command()
@click.argument("args", nargs=-1, metavar="[[TASK_ID [REQUEST_ID]] VALUE]")
@click.option("--json-value", help="The answer as JSON instead of VALUE, if the question wants more than text.")
@remote
def answer(api: Api, args: tuple[str, ...], json_value: str | None, as_json: bool) -> None:
    """Answer a question of a task. The ids may be left out if only one question is open; `inbox` lists them.

    VALUE is the number of an option, JSON if the question wants more than text, else the answer as text.

    \b
    Examples:
      ./errand answer "the second one"
      ./errand answer TASK 7
      ./errand answer TASK REQUEST --json-value '{"port": 443}'
    """
    ids, text = (args, None) if json_value is not None else (args[:-1], args[-1] if args else None)
    if (text is None) == (json_value is None) or len(ids) >= MOST_ARGUMENTS:
        raise click.UsageError("give either VALUE or --json-value, after the ids of task and request if you give them")
    # before the server is asked, so that a typing error costs nothing
    given = parse_json("--json-value", json_value) if json_value is not None else None
    task_id = resolve(api, ids[0]) if ids else None
    request, task_id, request_id = find_request(api, task_id, ids[1] if len(ids) > 1 else None, approvals=False)
    if text is not None:
        given = typed_value(request, text) if request else text
    send_answer(api, task_id, request_id, given, as_json=as_json)


def send_answer(api: Api, task_id: str, request_id: str, value: Any, *, as_json: bool = False) -> None:
    accepted = post_answer(api, task_id, request_id, value)
    if as_json:
        emit(accepted)
    else:
        note(f"Sent; `{PROGRAM} attach {task_id}` shows how the task continues.")


def parse_json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: not JSON: {error}") from None
