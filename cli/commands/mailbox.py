"""`errand mailbox`: list the outcomes of subagents in a conversation's mailbox."""

from typing import Any

import click
from errand.models import MailboxPage

from cli.api import Api, parse, segment
from cli.ids import ConversationIdType
from cli.options import remote
from cli.render.output import PROGRAM, age, emit, note, one_line, table


@click.command()
@click.argument("conversation_id", type=ConversationIdType())
@click.option("--live", is_flag=True, help="Ask the running conversation workflow instead of the database.")
@click.option("--all", "everything", is_flag=True, help="Include outcomes that were delivered already.")
@remote
def mailbox(api: Api, conversation_id: str, live: bool, everything: bool, as_json: bool) -> None:
    """Show the outcomes of subagents that wait for a fire.

    \b
    Examples:
      ./errand mailbox ID
      ./errand mailbox ID --all --json | jq -r '.items[].source_session_id'
    """
    answer = read_mailbox(api, conversation_id, live=live, everything=everything)
    if as_json:
        emit(answer)
    elif show_mailbox(answer):
        note(f"deliver them: {PROGRAM} fire {conversation_id}")


def read_mailbox(api: Api, conversation_id: str, *, live: bool = False, everything: bool = False) -> Any:
    return api.get(
        f"/conversations/{segment(conversation_id)}/mailbox",
        live="true" if live else None,
        all="true" if everything else None,
    )


def show_mailbox(answer: Any) -> bool:
    """Print a mailbox; True if some of it has not been delivered."""
    messages = parse(MailboxPage, answer).items
    if not messages:
        note("the mailbox is empty")
        return False
    rows = [
        [
            one_line(message.subagent_name),
            click.style("failed", fg="red") if message.source_type == "subagent_failed" else "result",
            message.source_session_id,
            age(message.created_at),
            message.delivered_to or "waiting",
        ]
        for message in messages
    ]
    table(["SUBAGENT", "OUTCOME", "SESSION", "POSTED", "DELIVERED TO"], rows)
    return any(not message.delivered_to for message in messages)
