"""`errand interrupt`: stop what runs now and keep what it has."""

import click

from cli.client.api import Api, part
from cli.options import remote
from cli.render.output import emit, note, status_word


@click.command()
@click.argument("id")
@click.option("--all", "everything", is_flag=True, help="ID is a conversation: all its sessions, subagents included.")
@remote
def interrupt(api: Api, id: str, everything: bool, as_json: bool) -> None:
    """Stop a running task at once. What it said so far is kept, its subagents go on, and the conversation lives.

    \b
    Examples:
      ./errand interrupt ID
      ./errand interrupt CONVERSATION --all
    """
    answer = api.post(f"/{'conversations' if everything else 'tasks'}/{part(id)}/interrupt", {})
    if as_json:
        emit(answer)
    elif everything:
        note(f"{answer['interrupted']} sessions interrupted")
    else:
        click.echo(status_word(answer["status"]))
