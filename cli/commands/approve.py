"""`errand approve`: approve a call or a plan, changed or unchanged, or deny it."""

import click

from cli.answering import find_request
from cli.api import Api
from cli.commands.answer import parse_json, send_answer
from cli.ids import TaskId
from cli.options import remote
from cli.render.input_requests import details_of, show_request
from cli.render.output import note, one_line
from domain.json_object import JsonObject


@click.command()
@click.argument("task_id", type=TaskId(), required=False)
@click.argument("request_id", required=False)
@click.option("--deny", is_flag=True, help="Deny it.")
@click.option("--always", is_flag=True, help="Calls like this one need no further approval in this conversation.")
@click.option("--notes", help="A message to the agent: why not, or what to watch out for.")
@click.option("--arguments", help="Run the call with these arguments instead, as JSON.")
@click.option("--plan", multiple=True, help="A step of the plan to follow instead. Repeatable, in order.")
@remote
def approve(
    api: Api,
    task_id: str | None,
    request_id: str | None,
    deny: bool,
    always: bool,
    notes: str | None,
    arguments: str | None,
    plan: tuple[str, ...],
    as_json: bool,
) -> None:
    """Approve or deny a tool call or a plan of a task. The ids may be left out if only one approval is waiting.

    \b
    Examples:
      ./errand approve
      ./errand approve TASK --always
      ./errand approve TASK REQUEST --deny --notes "not on a Friday"
      ./errand approve TASK REQUEST --arguments '{"command": "make test"}'
      ./errand approve TASK --plan "Look around" --plan "Write the report"
    """
    if deny and (arguments or plan or always):
        raise click.UsageError("a denied call or plan cannot be changed: leave out --arguments, --plan and --always")
    value: JsonObject = {"approved": not deny}
    value |= {"notes": notes} if notes else {}
    value |= {"arguments": parse_json("--arguments", arguments)} if arguments else {}
    value |= {"plan": list(plan)} if plan else {}
    request, task_id, request_id = find_request(api, task_id, request_id, approvals=True)
    if request is not None and always:
        # the patterns that the server proposed: a wider one must be typed by a person
        value["always"] = list(details_of(request).always)
        for pattern in details_of(request).always:
            note(f'From now on, in this conversation: allow {details_of(request).tool} "{one_line(pattern)}"')
    if request is not None and not as_json:
        show_request(request, hint=False)  # so that a terminal log shows what was approved
    send_answer(api, task_id, request_id, value, as_json=as_json)
