"""`errand tasks`: list tasks."""

import shlex

import click
from errand.models import Progress, TaskPage

from cli.api import Api, parse
from cli.ids import AgentNameType
from cli.options import remote
from cli.render.output import PROGRAM, age, emit, note, one_line, styled_status, table
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
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Tasks on one page.")
@click.option("--cursor", help="The cursor of the next page.")
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
    if as_json:
        emit(answer)
        return
    page = parse(TaskPage, answer)
    if not page.items:
        note("no tasks")
        return
    rows = [
        [
            task.short_id or task.task_id,
            styled_status(task.status),
            one_line(task.agent),
            _steps(task.progress),
            age(task.created_at),
            task.title,
        ]
        for task in page.items
    ]
    table(["TASK", "STATUS", "AGENT", "STEP", "CREATED", "TITLE"], rows)
    if page.next_cursor:
        filters = "".join(f" --status {status}" for status in statuses) + (f" --agent {agent}" if agent else "")
        filters += (f" --text {shlex.quote(text)}" if text else "") + (" --all" if everything else "")
        note(f"more: {PROGRAM} tasks{filters} --limit {limit} --cursor {page.next_cursor}")


def _steps(progress: Progress) -> str:
    return f"{progress.step}" + (f"/{progress.total_steps}" if progress.total_steps else "")
