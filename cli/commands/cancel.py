"""`errand cancel`: ask a task to stop."""

import click

from cli.api import Api, segment
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import PROGRAM, emit, note, styled_status
from domain.sessions.session import TERMINAL


@click.command()
@click.argument("task_id", type=TaskId())
@click.option("--reason", help="Recorded with the task.")
@click.option("--tree", is_flag=True, help="Cancel its subagents as well, and theirs.")
@click.option("--graceful", is_flag=True, help="Let running tools finish, for a minute at most.")
@remote
def cancel(api: Api, task_id: str, reason: str | None, tree: bool, graceful: bool, as_json: bool) -> None:
    """Ask a task to stop. What it has done so far is kept; a finished task stays as it is.

    Subagents that it waits for stop with it; those in the background continue unless you say --tree.

    \b
    Examples:
      ./errand cancel ID
      ./errand cancel ID --reason "wrong branch"
      ./errand cancel ID --tree
      ./errand cancel ID --graceful
    """
    body = ({"reason": reason} if reason else {}) | ({"scope": "tree"} if tree else {})
    body |= {"mode": "graceful"} if graceful else {}
    # without a key, because a repeated cancel changes nothing
    answer = api.ask("POST", f"/tasks/{segment(task_id)}/cancel", json=body)
    if as_json:
        emit(answer)
        return
    if answer["status"] in TERMINAL:
        click.echo(f"the task has ended already: {styled_status(answer['status'])}")
    else:
        click.echo(f"cancel requested; the task is still {styled_status(answer['status'])}")
        note(f"It stops at the next safe point; `{PROGRAM} attach {task_id}` shows when.")
