"""`errand answer`: answer a task's question; and how all commands send an answer."""

import json
from typing import Any

import click

from cli.client.api import Api, segment
from cli.client.models import PageOf, RequestInfo, parse
from cli.options import remote
from cli.render.output import PROGRAM, emit, note


@click.command()
@click.argument("task_id")
@click.argument("request_id")
@click.argument("value", required=False)
@click.option("--json-value", help="The answer as JSON, if the question wants more than text.")
@remote
def answer(api: Api, task_id: str, request_id: str, value: str | None, json_value: str | None, as_json: bool) -> None:
    """Answer a question of a task. `inbox` lists open questions and their ids.

    VALUE is the number of an option, JSON if the question wants more than text, else the answer as text.

    \b
    Examples:
      ./errand answer TASK REQUEST "the second one"
      ./errand answer TASK REQUEST 7
      ./errand answer TASK REQUEST --json-value '{"port": 443}'
    """
    if (value is None) == (json_value is None):
        raise click.UsageError("give either VALUE or --json-value")
    if value is None:
        answer = parse_json("--json-value", json_value or "")
    else:
        asked = [request for request in open_requests(api, task_id) if request.id == request_id]
        answer = typed_value(asked[0], value) if asked else value
    send_answer(api, task_id, request_id, answer, as_json=as_json)


def open_requests(api: Api, task_id: str) -> list[RequestInfo]:
    """The open requests of a task, oldest first."""
    page = parse(PageOf[RequestInfo], api.get(f"/tasks/{segment(task_id)}/input-requests"))
    return [request for request in reversed(page.items) if request.status == "open"]


def send_answer(api: Api, task_id: str, request_id: str, value: Any, *, as_json: bool = False) -> None:
    body = {"response_to": request_id, "input": value}
    accepted = api.send("POST", f"/tasks/{segment(task_id)}/input", json=body).json()
    if as_json:
        emit(accepted)
    else:
        note(f"Sent; `{PROGRAM} attach {task_id}` shows how the task continues.")


def typed_value(request: RequestInfo, text: str) -> Any:
    """Read what a person typed: an option's number, JSON if the schema wants more than text, else text."""
    options = request.details.options
    if text.isdigit() and 0 < int(text) <= len(options):
        return options[int(text) - 1]
    schema = request.answer_schema or {}
    if schema and schema.get("type") != "string":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def parse_json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: not JSON: {error}") from None
