"""`errand promote`: move a blocking subagent to the background."""

import click

from cli.api import Api, segment
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import emit, note


@click.command()
@click.argument("task_id", type=TaskId())
@remote
def promote(api: Api, task_id: str, as_json: bool) -> None:
    """Let the parent of a blocking subagent continue now; the subagent's outcome goes to the mailbox.

    \b
    Examples:
      ./errand promote ID
    """
    answer = api.post(f"/tasks/{segment(task_id)}/promote", {})
    if as_json:
        emit(answer)
    else:
        note("Its parent no longer waits; the outcome will be in the mailbox.")
