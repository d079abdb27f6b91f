"""`errand trace`: the steps of a task, as a tree or as JSON."""

import click

from cli.api import Api
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import emit
from cli.render.trace_text import trace_lines

FULL_TEXT = 100_000  # characters of each text in JSON
SHORT_TEXT = 2_000


@click.command()
@click.argument("task_id", type=TaskId())
@remote
def trace(api: Api, task_id: str, as_json: bool) -> None:
    """Show a task step by step: thoughts, tool calls, results, time, tokens and cost, with its subagents inside.

    \b
    Examples:
      ./errand trace ID
      ./errand trace ID --json | jq '.steps[].models[].usage.cost_usd'

    The console has the same as a page, which you can share as one file.
    """
    if as_json:
        emit(api.trace(task_id, FULL_TEXT).model_dump(mode="json"))
    else:
        for line in trace_lines(api.trace(task_id, SHORT_TEXT)):
            click.echo(line)
