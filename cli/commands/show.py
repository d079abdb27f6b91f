"""`errand show`: one task in detail."""

import click
from errand.models import Progress, Retry, Task

from cli.api import Api, parse, segment
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import PROGRAM, age, emit, facts, moment, note, one_line, styled_status
from cli.render.task_lines import error_line, plan_lines, usage_line


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
    answer = api.get(f"/tasks/{segment(task_id)}")
    if as_json:
        emit(answer)
        return
    task = parse(Task, answer)
    facts(
        [
            ("task", task.task_id),
            ("title", one_line(task.title)),
            ("agent", one_line(task.agent)),
            ("status", styled_status(task.status) + _ending(task)),
            ("error", error_line(task.error)),
            ("progress", _progress(task.progress)),
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
        return " (cancel requested)" if task.cancel_requested else ""
    return f" ({task.reason}{', partial result' if task.partial else ''})"


def _progress(progress: Progress) -> str:
    total = f" of {progress.total_steps}" if progress.total_steps else ""
    return f"step {progress.step}{total} {one_line(progress.message)}".rstrip()


def _retry(retry: Retry | None) -> str | None:
    if not retry:
        return None
    reason = one_line(retry.reason).removesuffix(".")
    return f"attempt {retry.attempt} failed: {reason}; next at {moment(retry.next_at)}"
