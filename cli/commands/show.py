"""`errand show`: one task in detail."""

from typing import Any

import click

from cli.client.api import Api
from cli.options import remote
from cli.render.output import PROGRAM, age, emit, error_line, facts, note, one_line, status_word, usage_line
from cli.render.story import plan_lines
from domain.sessions.session import Status


@click.command()
@click.argument("task_id")
@remote
def show(api: Api, task_id: str, as_json: bool) -> None:
    """Show one task: state, progress, plan, what it has used. The exit code is 0 whatever its state.

    \b
    Examples:
      ./errand show ID
      ./errand show ID --json | jq .progress
    """
    task = api.task(task_id)
    if as_json:
        emit(task)
        return
    facts(
        [
            ("task", task["task_id"]),
            ("title", one_line(task.get("title") or "")),
            ("agent", one_line(str(task.get("agent") or ""))),
            ("status", status_word(task["status"]) + _ending(task)),
            ("error", error_line(task.get("error"))),
            ("progress", _progress(task.get("progress") or {})),
            ("retry", _retry(task.get("retry"))),
            ("created", age(task.get("created_at"))),
            ("started", age(task.get("started_at"))),
            ("updated", age(task.get("updated_at"))),
            ("ended", age(task.get("ended_at"))),
            ("content", f"removed {age(removed)}" if (removed := task.get("content_removed_at")) else None),
            ("used", usage_line(task["usage"]) if task.get("usage") else None),
        ]
    )
    if task["status"] == Status.INPUT_REQUIRED:
        note(f"`{PROGRAM} inbox --conversation {task['conversation_id']}` shows what it waits for.")
    if task.get("plan"):
        click.echo("plan:")
        for line in plan_lines(task["plan"]["steps"]):
            click.echo(f"  {line}")


def _ending(task: dict[str, Any]) -> str:
    if not task.get("reason"):
        return " (cancel requested)" if task.get("cancel_requested") else ""
    return f" ({task['reason']}{', partial result' if task.get('partial') else ''})"


def _progress(progress: dict[str, Any]) -> str:
    total = f" of {progress['total_steps']}" if progress.get("total_steps") else ""
    return f"step {progress.get('step') or 0}{total} {one_line(progress.get('message') or '')}".rstrip()


def _retry(retry: dict[str, Any] | None) -> str | None:
    if not retry:
        return None
    return (
        f"attempt {retry.get('attempt')} failed: {one_line(str(retry.get('reason')))}; next at {retry.get('next_at')}"
    )
