"""`errand inbox`: list open input requests, and answer them."""

import sys

import click
from errand.models import InputRequest

from cli.answering import all_open_requests, answer_by_typing
from cli.api import Api, parse
from cli.ids import ConversationIdType
from cli.options import remote
from cli.render.input_requests import show_request
from cli.render.output import emit, note


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
