"""`errand tasks`: the list of tasks."""

import click

from cli.client.api import Api
from cli.options import remote
from cli.render.output import PROGRAM, age, emit, note, one_line, status_word, table
from domain.sessions.session import Status


@click.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([status.value for status in Status]),
    help="Only tasks in this state. Repeatable.",
)
@click.option("--agent", help="Only tasks of this agent.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Tasks on one page.")
@click.option("--cursor", help="Where the last page ended.")
@remote
def tasks(
    api: Api, statuses: tuple[str, ...], agent: str | None, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List tasks, the newest first.

    \b
    Examples:
      ./errand tasks --status working
      ./errand tasks --agent researcher --limit 50 --json | jq -r '.items[].task_id'
    """
    page = api.get("/tasks", status=statuses, agent=agent, limit=limit, cursor=cursor)
    if as_json:
        emit(page)
        return
    if not page["items"]:
        note("no tasks")
        return
    rows = [
        [
            item["task_id"],
            status_word(item["status"]),
            one_line(item.get("agent") or ""),
            _steps(item.get("progress") or {}),
            age(item.get("created_at")),
            item.get("title") or "",
        ]
        for item in page["items"]
    ]
    table(["TASK", "STATUS", "AGENT", "STEP", "CREATED", "TITLE"], rows)
    if page.get("next_cursor"):
        filters = "".join(f" --status {status}" for status in statuses) + (f" --agent {agent}" if agent else "")
        note(f"more: {PROGRAM} tasks{filters} --limit {limit} --cursor {page['next_cursor']}")


def _steps(progress: dict[str, int | None]) -> str:
    total = progress.get("total_steps")
    return f"{progress.get('step') or 0}" + (f"/{total}" if total else "")
