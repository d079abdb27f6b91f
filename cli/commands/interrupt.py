"""`errand interrupt`: stop a running task and keep what it has said."""

import click

from cli.client.api import Api, segment
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import emit, note, styled_status


@click.command()
@click.argument("id", type=TaskId())
@click.option("--all", "everything", is_flag=True, help="ID is a conversation: stop all its sessions and subagents.")
@remote
def interrupt(api: Api, id: str, everything: bool, as_json: bool) -> None:
    """Stop a running task now. What it said so far is kept; its subagents and its conversation continue.

    \b
    Examples:
      ./errand interrupt ID
      ./errand interrupt CONVERSATION --all
    """
    answer = api.post(f"/{'conversations' if everything else 'tasks'}/{segment(id)}/interrupt", {})
    if as_json:
        emit(answer)
    elif everything:
        note(f"{answer['interrupted']} sessions interrupted")
    else:
        click.echo(styled_status(answer["status"]))
