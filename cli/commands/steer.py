"""`errand steer`: a further word to an agent at work."""

import sys

import click

from cli.client.api import Api, part
from cli.options import remote
from cli.render.output import PROGRAM, emit, note


@click.command()
@click.argument("task_id")
@click.argument("text")
@remote
def steer(api: Api, task_id: str, text: str, as_json: bool) -> None:
    """Tell a running task something; it reads it before its next step and goes on. - reads TEXT from stdin.

    A task that has ended cannot hear you (exit code 5); go on with `chat --conversation`.

    \b
    Examples:
      ./errand steer ID "Leave the tests alone"
    """
    words = sys.stdin.read() if text == "-" else text
    answer = api.post(f"/tasks/{part(task_id)}/steer", {"message": words})
    if as_json:
        emit(answer)
    else:
        note(f"Sent; it reads it before its next step. `{PROGRAM} attach {task_id}` shows how it goes on.")
