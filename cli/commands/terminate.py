"""`errand terminate`: end a conversation for good."""

import click

from cli.client.api import Api, segment
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import emit, note


@click.command()
@click.argument("conversation_id", type=TaskId())
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@remote
def terminate(api: Api, conversation_id: str, yes: bool, as_json: bool) -> None:
    """End a conversation: all its sessions stop, and it accepts nothing new. Its messages stay readable.

    \b
    Examples:
      ./errand terminate ID
      ./errand terminate ID --yes --json
    """
    if not yes and not as_json:
        click.confirm(f"End conversation {conversation_id} for good?", abort=True, err=True)
    answer = api.post(f"/conversations/{segment(conversation_id)}/terminate", {})
    if as_json:
        emit(answer)
    else:
        note("Terminated.")
