"""`errand budget`: shows and raises the limits of a task, its subagents and their conversation."""

from typing import Any

import click
from errand.models import BudgetLine, TaskBudget

from cli.api import Api, segment
from cli.ids import TaskId
from cli.options import Duration, remote
from cli.render.answers import print_answer
from cli.render.output import dim, duration, one_line, style_status, table
from domain.amounts import format_count

_MANY, _DOLLARS = click.IntRange(min=1), click.FloatRange(min=0, min_open=True)


@click.command()
@click.argument("task_id", type=TaskId())
@click.option("--ttl", type=Duration(), help="Raise its time to this: 30m, 2h, 1d, counted from its beginning.")
@click.option("--max-steps", type=_MANY, help="Raise its limit of model calls to this.")
@click.option("--max-tokens", type=_MANY, help="Raise its token budget to this.")
@click.option("--max-cost", "max_cost_usd", type=_DOLLARS, help="Raise its cost budget to this, in US dollars.")
@click.option("--max-tool-calls", type=_MANY, help="Raise its limit of tool calls to this.")
@click.option("--tree", is_flag=True, help="Raise those of the whole conversation.")
@remote
def budget(api: Api, task_id: str, tree: bool, as_json: bool, **limits: Any) -> None:
    """Show the limits of a task, what it has used and what is left; then the same for its subagents and the tree.

    With new limits, raise them first: a running task, even one that waits for a person, continues with them. They are
    not additions, so repeating the command changes nothing.

    \b
    Examples:
      ./errand budget ID
      ./errand budget ID --max-steps 100 --ttl 2h
      ./errand budget ID --tree --max-cost 20
      ./errand budget ID --json | jq .tree
    """
    path, given = f"/tasks/{segment(task_id)}/budget", {name: one for name, one in limits.items() if one is not None}
    answer = api.ask("POST", path, json={"tree": given} if tree else given) if given else api.get(path)
    print_answer(answer, as_json, TaskBudget, _show)


def _show(found: TaskBudget) -> None:
    for session in (found, *found.children):
        click.echo(f"{one_line(session.name)}  {session.task_id}  {style_status(session.status)}")
        _table(session.budgets)
    if tree := found.tree:
        click.echo(f"together, in conversation {tree.conversation_id}")
        _table(tree.budgets)
        if tree.reserved.calls:
            reserved = f"{format_count(tree.reserved.calls, 'running model call')}: {tree.reserved.tokens:,} tokens"
            click.echo(dim(f"  reserved by {reserved}"))


def _table(budgets: list[BudgetLine]) -> None:
    table(
        ["  BUDGET", "LIMIT", "USED", "LEFT"],
        [
            [f"  {line.budget}", *(_figure(line.budget, value) for value in (line.limit, line.used, line.left))]
            for line in budgets
        ],
    )


def _figure(budget: str, value: float) -> str:
    if budget == "ttl":
        return duration(value / 1_000)
    return f"${value:.4f}" if budget == "cost_usd" else f"{value:,.0f}"
