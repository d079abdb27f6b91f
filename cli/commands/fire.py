"""`errand fire`: deliver what waits in a conversation's mailbox, as one continuation."""

import click

from cli.client.api import Api, part
from cli.options import patience_option, remote
from cli.render.output import emit
from cli.render.watch import detached, watch


@click.command()
@click.argument("conversation_id")
@click.argument("text", metavar="[INPUT]", required=False)
@click.option("--queue", is_flag=True, help="If the conversation is at work, fire once it is done.")
@click.option("--wait/--no-wait", " /--detach", default=True, help="Watch the continuation.  [default: wait]")
@patience_option
@remote
def fire(
    api: Api, conversation_id: str, text: str | None, queue: bool, wait: bool, patience: int, as_json: bool
) -> None:
    """Hand all outcomes that wait in the mailbox to the agent, with INPUT if you have something to add.

    An empty mailbox is refused (exit code 5), and nothing happens. The exit code tells the outcome of the continuation.

    \b
    Examples:
      ./errand fire ID
      ./errand fire ID "Sum it up in three sentences"
      ./errand fire ID --detach --json | jq -r .session_id
    """
    body = ({"input": text} if text else {}) | ({"if_busy": "queue"} if queue else {})
    handle = api.post(f"/conversations/{part(conversation_id)}/fire", body)
    if wait:
        watch(api, handle["session_id"], after=0, patience_ms=patience, as_json=as_json)
    elif as_json:
        emit(handle)
    else:
        click.echo(handle["session_id"])
        detached(handle["session_id"], 0, "Fired")
