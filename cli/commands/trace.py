"""`errand trace`: the steps of a task, as a tree, as JSON, or as an HTML page."""

from pathlib import Path

import click

from cli.client.api import Api
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import emit, note
from cli.render.output_file import write_output
from cli.render.trace_text import trace_lines

FULL_TEXT = 100_000  # characters of each text in JSON
SHORT_TEXT = 2_000


@click.command()
@click.argument("task_id", type=TaskId())
@click.option(
    "--html",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write an HTML page with timeline, tree and cost to this file.",
)
@remote
def trace(api: Api, task_id: str, file: Path | None, as_json: bool) -> None:
    """Show a task step by step: thoughts, tool calls, results, time, tokens and cost, with its subagents inside.

    \b
    Examples:
      ./errand trace ID
      ./errand trace ID --html trace.html
      ./errand trace ID --json | jq '.steps[].models[].usage.cost_usd'
    """
    if file is not None:
        write_output(file, api.trace_page(task_id))
        note(f"wrote {file}: open it in a browser")
    if as_json:
        emit(api.trace(task_id, FULL_TEXT).model_dump(mode="json"))
    elif file is None:
        for line in trace_lines(api.trace(task_id, SHORT_TEXT)):
            click.echo(line)
