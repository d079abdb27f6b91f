"""`errand tasks`, `show`, `attach`: the tasks, one of them in detail, and watching it again."""

import shlex

import click
from errand.models import Retry, Task, TaskPage

from cli.api import Api, segment
from cli.ids import AgentNameType, TaskId
from cli.options import no_input_option, page_options, patience_option, remote
from cli.render.answers import print_answer, print_list
from cli.render.output import (
    PROGRAM,
    age,
    error_line,
    facts,
    moment,
    note,
    one_line,
    plan_lines,
    style_status,
    usage_line,
)
from cli.watch import watch
from domain.sessions.session import Status


@click.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([status.value for status in Status]),
    help="Only tasks with this status. Repeatable.",
)
@click.option("--agent", type=AgentNameType(), help="Only tasks of this agent.")
@click.option("--text", help="Only tasks with this in their title.")
@click.option("--all", "everything", is_flag=True, help="Also show subagents, reruns and tasks of other keys.")
@page_options("Tasks")
@remote
def tasks(
    api: Api,
    statuses: tuple[str, ...],
    agent: str | None,
    text: str | None,
    everything: bool,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List your own tasks, newest first; --all shows subagents and reruns too.

    \b
    Examples:
      ./errand tasks --status working
      ./errand tasks --text report
      ./errand tasks --agent researcher --limit 50 --json | jq -r '.items[].task_id'
    """
    own = None if everything else "true"
    given = {"status": statuses, "agent": agent, "text": text, "own": own, "top_level": own}
    answer = api.get("/tasks", **given, limit=limit, cursor=cursor)
    filters = "".join(f" --status {status}" for status in statuses) + (f" --agent {agent}" if agent else "")
    filters += (f" --text {shlex.quote(text)}" if text else "") + (" --all" if everything else "")
    columns = ["TASK", "STATUS", "AGENT", "STEP", "CREATED", "TITLE"]
    print_list(answer, as_json, TaskPage, columns, _row, empty="no tasks", more=f"tasks{filters} --limit {limit}")


def _row(task: Task) -> list[str]:
    progress = task.progress
    steps = f"{progress.step}" + (f"/{progress.total_steps}" if progress.total_steps else "")
    task_id, agent = task.short_id or task.task_id, one_line(task.agent)
    return [task_id, style_status(task.status), agent, steps, age(task.created_at), task.title]


@click.command()
@click.argument("task_id", type=TaskId())
@remote
def show(api: Api, task_id: str, as_json: bool) -> None:
    """Show one task: status, progress, plan, usage. The exit code is 0 whatever its status.

    \b
    Examples:
      ./errand show ID
      ./errand show ID --json | jq .progress
    """
    print_answer(api.get(f"/tasks/{segment(task_id)}"), as_json, Task, _show)


def _show(task: Task) -> None:
    progress = task.progress
    total = f" of {progress.total_steps}" if progress.total_steps else ""
    facts(
        [
            ("task", task.task_id),
            ("title", one_line(task.title)),
            ("agent", one_line(task.agent)),
            ("status", style_status(task.status) + _ending(task)),
            ("error", error_line(task.error)),
            ("progress", f"step {progress.step}{total} {one_line(progress.message)}".rstrip()),
            ("retry", _retry(task.retry)),
            ("created", age(task.created_at)),
            ("started", age(task.started_at)),
            ("updated", age(task.updated_at)),
            ("ended", age(task.ended_at)),
            ("content", f"removed {age(task.content_removed_at)}" if task.content_removed_at else None),
            ("used", usage_line(task.usage)),
        ]
    )
    if task.status == "input_required":
        note(f"`{PROGRAM} inbox --conversation {task.conversation_id}` shows what it is waiting for.")
    if task.plan:
        click.echo("plan:")
        for line in plan_lines(task.plan.steps):
            click.echo(f"  {line}")


def _ending(task: Task) -> str:
    if not task.reason:
        queued = " (waits for the turn before it)" if task.queued else ""
        return " (cancel requested)" if task.cancel_requested else queued
    return f" ({task.reason}{', partial result' if task.partial else ''})"


def _retry(retry: Retry | None) -> str | None:
    if not retry:
        return None
    reason = one_line(retry.reason).removesuffix(".")
    return f"attempt {retry.attempt} failed: {reason}; next at {moment(retry.next_at)}"


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
