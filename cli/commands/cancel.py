"""`errand cancel`: ask a task to stop."""

import click

from cli.client.api import Api, part
from cli.options import remote
from cli.render.output import PROGRAM, emit, note, status_word


@click.command()
@click.argument("task_id")
@click.option("--reason", help="Kept with the task.")
@click.option("--tree", is_flag=True, help="Its subagents as well, and theirs.")
@click.option("--graceful", is_flag=True, help="Let the tools that run finish, for a minute at the most.")
@remote
def cancel(api: Api, task_id: str, reason: str | None, tree: bool, graceful: bool, as_json: bool) -> None:
    """Ask a task to stop. What it has done so far is kept; a finished task stays as it is.

    Subagents that it waits for stop with it; those it sent off go on, unless you say --tree.

    \b
    Examples:
      ./errand cancel ID
      ./errand cancel ID --reason "wrong branch"
      ./errand cancel ID --tree
      ./errand cancel ID --graceful
    """
    body = ({"reason": reason} if reason else {}) | ({"scope": "tree"} if tree else {})
    body |= {"mode": "graceful"} if graceful else {}
    task = api.send("POST", f"/tasks/{part(task_id)}/cancel", json=body).json()
    if as_json:
        emit(task)
        return
    click.echo(status_word(task["status"]))
    if task["status"] not in ("completed", "failed", "cancelled"):
        note(f"It stops at the next safe point; `{PROGRAM} attach {task_id}` shows when.")
