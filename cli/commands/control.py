"""`errand cancel`, `interrupt`, `steer`, `promote`, `terminate`: what a person does to something that runs."""

import sys

import click

from cli.api import Api, segment
from cli.errors import NotFoundError
from cli.ids import TaskId, ThreadIdType
from cli.options import remote
from cli.render.answers import print_done
from cli.render.output import PROGRAM, emit, note, style_status
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
    elif _still_runs(answer["status"], "cancel"):
        note(f"It stops at the next safe point; `{PROGRAM} attach {task_id}` shows when.")


def _still_runs(status: str, asked: str) -> bool:
    if status in TERMINAL:
        click.echo(f"the task has ended already: {style_status(status)}")
        return False
    click.echo(f"{asked} requested; the task is still {style_status(status)}")
    return True


@click.command()
@click.argument("task_id", type=TaskId())
@remote
def interrupt(api: Api, task_id: str, as_json: bool) -> None:
    """Stop a running task now. What it said so far is kept; its subagents and its conversation continue.

    \b
    Examples:
      ./errand interrupt ID
    """
    answer = api.post(f"/tasks/{segment(task_id)}/interrupt", {})
    if as_json:
        emit(answer)
    elif _still_runs(answer["status"], "interrupt"):
        note(f"It stops now and keeps what it has said; `{PROGRAM} attach {task_id}` shows the end.")


@click.command()
@click.argument("task_id", type=TaskId())
@click.argument("text")
@remote
def steer(api: Api, task_id: str, text: str, as_json: bool) -> None:
    """Send a message to a running task, which reads it before its next step. - reads TEXT from stdin.

    A task that has ended is refused (exit code 4); continue it with `chat --conversation`.

    \b
    Examples:
      ./errand steer ID "Leave the tests alone"
    """
    message = sys.stdin.read() if text == "-" else text
    answer = api.post(f"/tasks/{segment(task_id)}/steer", {"message": message})
    said = f"Sent; the task reads it before its next step. `{PROGRAM} attach {task_id}` shows how it continues."
    print_done(answer, as_json, said)


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
    print_done(answer, as_json, "Its parent no longer waits; the outcome will be in the mailbox.")


@click.command()
@click.argument("thread_id", metavar="ID", type=ThreadIdType())
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@remote
def terminate(api: Api, thread_id: str, yes: bool, as_json: bool) -> None:
    """End a conversation: all its sessions stop, and it accepts nothing new. Its messages stay readable.

    With the reference of a subagent, which `show` and `tree` print, only that subagent and those below it end.

    \b
    Examples:
      ./errand terminate ID
      ./errand terminate ID --yes --json
    """
    if not yes and not as_json:
        # asked on stderr; with --json nobody may be there to answer, so that the flag counts as a yes
        click.confirm(f"End {thread_id} permanently?", abort=True, err=True)
    try:
        answer = api.post(f"/conversations/{segment(thread_id)}/terminate", {})
    except NotFoundError:  # a conversation's id is that of its main thread; any other thread belongs to a subagent
        answer = api.post(f"/threads/{segment(thread_id)}/terminate", {})
    print_done(answer, as_json, "Terminated.")
