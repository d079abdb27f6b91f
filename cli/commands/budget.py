"""`errand budget`: what a task, its subagents and their whole tree may still use."""

from typing import Any

import click

from cli.client.api import Api, part
from cli.options import remote
from cli.render.output import dim, duration, emit, one_line, status_word, table


@click.command()
@click.argument("task_id")
@remote
def budget(api: Api, task_id: str, as_json: bool) -> None:
    """Show the limits of a task, what it has used and what is left; then the same of its subagents and of the tree.

    \b
    Examples:
      ./errand budget ID
      ./errand budget ID --json | jq .tree
    """
    found = api.get(f"/tasks/{part(task_id)}/budget")
    if as_json:
        emit(found)
        return
    for one in (found, *found["children"]):
        click.echo(f"{one_line(one['name'])}  {one['task_id']}  {status_word(one['status'])}")
        _table(one["budgets"])
    if found["tree"]:
        held = found["tree"]["reserved"]
        click.echo(f"together, in conversation {found['tree']['conversation_id']}")
        _table(found["tree"]["budgets"])
        if held["calls"]:
            click.echo(dim(f"  reserved by {held['calls']} model calls under way: {held['tokens']:,} tokens"))


def _table(lines: list[dict[str, Any]]) -> None:
    table(
        ["  BUDGET", "LIMIT", "USED", "LEFT"],
        [
            [f"  {one['budget']}", *(_figure(one["budget"], one[name]) for name in ("limit", "used", "left"))]
            for one in lines
        ],
    )


def _figure(budget: str, value: float) -> str:
    if budget == "ttl":
        return duration(value / 1_000)
    return f"${value:.4f}" if budget == "cost_usd" else f"{value:,.0f}"
