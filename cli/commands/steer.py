"""`errand steer`: send a message to a running task."""

import sys

import click

from cli.api import Api, segment
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import PROGRAM, emit, note


@click.command()
@click.argument("task_id", type=TaskId())
@click.argument("text")
@remote
def steer(api: Api, task_id: str, text: str, as_json: bool) -> None:
    """Send a message to a running task, which reads it before its next step. - reads TEXT from stdin.

    A task that has ended is refused (exit code 5); continue it with `chat --conversation`.

    \b
    Examples:
      ./errand steer ID "Leave the tests alone"
    """
    message = sys.stdin.read() if text == "-" else text
    answer = api.post(f"/tasks/{segment(task_id)}/steer", {"message": message})
    if as_json:
        emit(answer)
    else:
        note(f"Sent; the task reads it before its next step. `{PROGRAM} attach {task_id}` shows how it continues.")
