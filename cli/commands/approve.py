"""`errand approve`: let a call or a plan go ahead, changed or not, or deny it."""

from typing import Any

import click

from cli.client.api import Api
from cli.commands.answer import parse
from cli.options import remote
from cli.render.output import note
from cli.render.requests import APPROVALS, Request, open_requests, send, show


@click.command()
@click.argument("task_id")
@click.argument("request_id", required=False)
@click.option("--deny", is_flag=True, help="Say no.")
@click.option("--notes", help="Words for the agent: why not, or what to mind.")
@click.option("--arguments", help="The call as it should run instead, as JSON.")
@click.option("--plan", multiple=True, help="A step of the plan as it should be instead. Repeatable, in order.")
@remote
def approve(
    api: Api,
    task_id: str,
    request_id: str | None,
    deny: bool,
    notes: str | None,
    arguments: str | None,
    plan: tuple[str, ...],
    as_json: bool,
) -> None:
    """Approve what a task wants to do, or deny it. Without REQUEST_ID, the one thing it waits for.

    \b
    Examples:
      ./errand approve TASK
      ./errand approve TASK REQUEST --deny --notes "not on a Friday"
      ./errand approve TASK REQUEST --arguments '{"command": "make test"}'
      ./errand approve TASK --plan "Look around" --plan "Write the report"
    """
    if deny and (arguments or plan):
        raise click.UsageError("a denied call or plan cannot be changed: leave out --arguments and --plan")
    value: dict[str, Any] = {"approved": not deny}
    value |= {"notes": notes} if notes else {}
    value |= {"arguments": parse("--arguments", arguments)} if arguments else {}
    value |= {"plan": list(plan)} if plan else {}
    waiting = [request for request in open_requests(api, task_id) if request["kind"] in APPROVALS]
    request_id = request_id or _only(waiting)
    for request in waiting:
        if request["id"] == request_id and not as_json:
            show(request, hint=False)  # so that a record of the terminal says what was approved
    send(api, task_id, request_id, value, as_json=as_json)


def _only(waiting: list[Request]) -> str:
    if len(waiting) == 1:
        return str(waiting[0]["id"])
    for request in waiting:
        show(request)
    if not waiting:
        note("its subagents may wait: look into `inbox`")
        raise click.UsageError("no approval waits in this task")
    raise click.UsageError(f"{len(waiting)} approvals wait in this task; name one")
