"""`errand approve`: approve a call or a plan, changed or unchanged, or deny it."""

from typing import Any

import click

from cli.client.api import Api
from cli.client.models import RequestInfo
from cli.commands.answer import open_requests, parse_json, send_answer
from cli.options import remote
from cli.render.input_requests import show_request
from cli.render.output import note
from domain.sessions.input_request import APPROVALS


@click.command()
@click.argument("task_id")
@click.argument("request_id", required=False)
@click.option("--deny", is_flag=True, help="Deny it.")
@click.option("--notes", help="A message to the agent: why not, or what to watch out for.")
@click.option("--arguments", help="Run the call with these arguments instead, as JSON.")
@click.option("--plan", multiple=True, help="A step of the plan to follow instead. Repeatable, in order.")
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
    """Approve or deny a tool call or a plan of a task. REQUEST_ID may be left out if only one is waiting.

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
    value |= {"arguments": parse_json("--arguments", arguments)} if arguments else {}
    value |= {"plan": list(plan)} if plan else {}
    waiting = [request for request in open_requests(api, task_id) if request.kind in APPROVALS]
    request_id = request_id or _only_one(waiting)
    for request in waiting:
        if request.id == request_id and not as_json:
            show_request(request, hint=False)  # so that a log of the terminal shows what was approved
    send_answer(api, task_id, request_id, value, as_json=as_json)


def _only_one(waiting: list[RequestInfo]) -> str:
    if len(waiting) == 1:
        return waiting[0].id
    for request in waiting:
        show_request(request)
    if not waiting:
        note("its subagents may be waiting for one: see `inbox`")
        raise click.UsageError("this task is not waiting for an approval")
    raise click.UsageError(f"{len(waiting)} approvals are waiting in this task; give the id of one")
