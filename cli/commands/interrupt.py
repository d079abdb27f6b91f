"""`errand interrupt`: stop a running task and keep what it has said."""

import click

from cli.api import Api, segment
from cli.ids import ConversationIdType, TaskId, resolve
from cli.options import remote
from cli.render.output import PROGRAM, emit, note, styled_status
from domain.amounts import counted
from domain.sessions.session import TERMINAL


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
    id = resolve(api, id, ConversationIdType.field) if everything else id
    answer = api.post(f"/{'conversations' if everything else 'tasks'}/{segment(id)}/interrupt", {})
    if as_json:
        emit(answer)
    elif everything:
        note(f"{counted(answer['interrupted'], 'session')} interrupted")
    elif answer["status"] in TERMINAL:
        click.echo(f"the task has ended already: {styled_status(answer['status'])}")
    else:
        click.echo(f"interrupt requested; the task is still {styled_status(answer['status'])}")
        note(f"It stops now and keeps what it has said; `{PROGRAM} attach {id}` shows the end.")
