"""`errand answer`: answer a task's question."""

import json

import click

from cli.client.api import Api
from cli.options import remote
from cli.render.requests import open_requests, read_value, send


@click.command()
@click.argument("task_id")
@click.argument("request_id")
@click.argument("value", required=False)
@click.option("--json-value", help="The answer as JSON, where the question wants more than words.")
@remote
def answer(api: Api, task_id: str, request_id: str, value: str | None, json_value: str | None, as_json: bool) -> None:
    """Answer what a task asked. `inbox` shows what waits and the ids.

    VALUE is one of the options by its number, JSON where the question wants more than words, else the words.

    \b
    Examples:
      ./errand answer TASK REQUEST "the second one"
      ./errand answer TASK REQUEST 7
      ./errand answer TASK REQUEST --json-value '{"port": 443}'
    """
    if (value is None) == (json_value is None):
        raise click.UsageError("give either VALUE or --json-value")
    answer = _read(api, task_id, request_id, value) if value is not None else parse("--json-value", json_value or "")
    send(api, task_id, request_id, answer, as_json=as_json)


def _read(api: Api, task_id: str, request_id: str, value: str) -> object:
    asked = [request for request in open_requests(api, task_id) if request["id"] == request_id]
    return read_value(asked[0], value) if asked else value


def parse(option: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: not JSON: {error}") from None
