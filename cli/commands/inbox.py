"""`errand inbox`, `answer`, `approve`: what waits for people, and their answers."""

import sys
from typing import Any

import click
from errand.models import InputRequest

from cli.answering import (
    all_open_requests,
    answer_by_typing,
    details_of,
    find_request,
    parse_typed_value,
    post_answer,
    show_request,
)
from cli.api import Api, parse
from cli.ids import ConversationIdType, TaskId, resolve
from cli.options import remote
from cli.render.answers import print_done
from cli.render.output import PROGRAM, emit, note, one_line
from domain.json_object import JsonObject, read_json


@click.command()
@click.option(
    "--conversation",
    "conversation_id",
    type=ConversationIdType(),
    help="Only of this conversation, including its subagents.",
)
@click.option("--answer/--list", "answering", default=None, help="Answer them one by one.  [default: on a terminal]")
@remote
def inbox(api: Api, conversation_id: str | None, answering: bool | None, as_json: bool) -> None:
    """List what tasks are waiting for: questions, calls and plans to approve. On a terminal, ask for the answers.

    \b
    Examples:
      ./errand inbox
      ./errand inbox --json | jq -r '.items[].question'
    """
    requests = all_open_requests(api, conversation_id)
    if as_json:
        emit({"items": requests})
        return
    if not requests:
        note("nothing is waiting for you")
    if answering is None:
        # a script that lists the inbox must not wait for somebody to type
        answering = sys.stdin.isatty() and sys.stdout.isatty()
    for request in (parse(InputRequest, answer) for answer in requests):
        show_request(request)
        if answering:
            answer_by_typing(api, request)
        click.echo()


MOST_ARGUMENTS = 3


@click.command()
@click.argument("args", nargs=-1, metavar="[[TASK_ID [REQUEST_ID]] VALUE]")
@click.option("--json-value", help="The answer as JSON instead of VALUE, if the question wants more than text.")
@remote
def answer(api: Api, args: tuple[str, ...], json_value: str | None, as_json: bool) -> None:
    """Answer a question of a task. The ids may be left out if only one question is open; `inbox` lists them.

    VALUE is the number of an option, JSON if the question wants more than text, else the answer as text.

    \b
    Examples:
      ./errand answer "the second one"
      ./errand answer TASK 7
      ./errand answer TASK REQUEST --json-value '{"port": 443}'
    """
    ids, text = (args, None) if json_value is not None else (args[:-1], args[-1] if args else None)
    if (text is None) == (json_value is None) or len(ids) >= MOST_ARGUMENTS:
        raise click.UsageError("give either VALUE or --json-value, after the ids of task and request if you give them")
    # before the server is asked, so that a typing error costs nothing
    given = parse_json("--json-value", json_value) if json_value is not None else None
    task_id = resolve(api, ids[0]) if ids else None
    request, task_id, request_id = find_request(api, task_id, ids[1] if len(ids) > 1 else None, approvals=False)
    if text is not None:
        given = parse_typed_value(request, text) if request else text
    send_answer(api, task_id, request_id, given, as_json=as_json)


def send_answer(api: Api, task_id: str, request_id: str, value: Any, *, as_json: bool = False) -> None:
    accepted = post_answer(api, task_id, request_id, value)
    print_done(accepted, as_json, f"Sent; `{PROGRAM} attach {task_id}` shows how the task continues.")


def parse_json(option: str, text: str) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: not JSON: {error}") from None


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
