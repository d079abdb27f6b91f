"""`errand budget`: the limits of a task, its subagents and their conversation, and what is left."""

import click

from cli.client.api import Api, segment
from cli.client.models import BudgetInfo, TaskBudgetInfo
from cli.client.response import parse
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import dim, duration, emit, one_line, styled_status, table


@click.command()
@click.argument("task_id", type=TaskId())
@remote
def budget(api: Api, task_id: str, as_json: bool) -> None:
    """Show the limits of a task, what it has used and what is left; then the same for its subagents and the tree.

    \b
    Examples:
      ./errand budget ID
      ./errand budget ID --json | jq .tree
    """
    answer = api.get(f"/tasks/{segment(task_id)}/budget")
    if as_json:
        emit(answer)
        return
    found = parse(TaskBudgetInfo, answer)
    for session in (found, *found.children):
        click.echo(f"{one_line(session.name)}  {session.task_id}  {styled_status(session.status)}")
        _table(session.budgets)
    if tree := found.tree:
        click.echo(f"together, in conversation {tree.conversation_id}")
        _table(tree.budgets)
        if tree.reserved.calls:
            reserved = f"{tree.reserved.calls} running model calls: {tree.reserved.tokens:,} tokens"
            click.echo(dim(f"  reserved by {reserved}"))


def _table(budgets: list[BudgetInfo]) -> None:
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
