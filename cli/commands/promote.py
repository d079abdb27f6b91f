"""`errand promote`: let a subagent that its parent waits for go on in the background."""

import click

from cli.client.api import Api, part
from cli.options import remote
from cli.render.output import emit, note


@click.command()
@click.argument("task_id")
@remote
def promote(api: Api, task_id: str, as_json: bool) -> None:
    """Free the parent of a blocking subagent: the parent goes on at once, the outcome comes to the mailbox.

    \b
    Examples:
      ./errand promote ID
    """
    answer = api.post(f"/tasks/{part(task_id)}/promote", {})
    if as_json:
        emit(answer)
    else:
        note("Its parent no longer waits; the outcome will be in the mailbox.")
