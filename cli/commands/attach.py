"""`errand attach`: watch a task that was submitted before."""

import click

from cli.api import Api
from cli.ids import TaskId
from cli.options import no_input_option, patience_option, remote
from cli.watch import watch


@click.command()
@click.argument("task_id", type=TaskId())
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events after this number.  [default: all]")
@no_input_option
@patience_option
@remote
def attach(api: Api, task_id: str, after: int, no_input: bool, patience: int, as_json: bool) -> None:
    """Watch a task from its first event, or after event N, until it ends.

    Several people may watch the same task. Ctrl-C detaches; the task continues.

    \b
    Examples:
      ./errand attach ID
      ./errand attach ID --after 120
      ./errand attach ID --json | jq -r 'select(.type == "tool_called") | .tool'
    """
    api.task(task_id)  # fail here for an unknown id or an unreachable server, instead of retrying
    watch(api, task_id, after=after, patience_ms=patience, as_json=as_json, no_input=no_input)
