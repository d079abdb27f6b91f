"""`errand fire`: deliver the outcomes in a conversation's mailbox in one new session."""

import click
from errand.models import SessionHandle

from cli.api import Api, parse, segment
from cli.ids import ConversationIdType
from cli.local_state import write_last
from cli.options import patience_option, remote
from cli.render.output import emit
from cli.watch import show_detached, watch


@click.command()
@click.argument("conversation_id", type=ConversationIdType())
@click.argument("text", metavar="[INPUT]", required=False)
@click.option("--queue", is_flag=True, help="If a session is running in the conversation, fire after it has ended.")
@click.option("--wait/--no-wait", " /--detach", default=True, help="Watch the new session.  [default: wait]")
@patience_option
@remote
def fire(
    api: Api, conversation_id: str, text: str | None, queue: bool, wait: bool, patience: int, as_json: bool
) -> None:
    """Give the agent all outcomes that wait in the mailbox, with INPUT as your own message after them.

    An empty mailbox is refused (exit code 5), and nothing happens. Otherwise the exit code is that of the new session.

    \b
    Examples:
      ./errand fire ID
      ./errand fire ID "Sum it up in three sentences"
      ./errand fire ID --detach --json | jq -r .session_id
    """
    body = ({"input": text} if text else {}) | ({"if_busy": "queue"} if queue else {})
    answer = api.post(f"/conversations/{segment(conversation_id)}/fire", body)
    session_id = parse(SessionHandle, answer).session_id
    write_last(api.address, session_id)
    if wait:
        watch(api, session_id, after=0, patience_ms=patience, as_json=as_json)
    elif as_json:
        emit(answer)
    else:
        click.echo(session_id)
        show_detached(session_id, 0, "Fired")
