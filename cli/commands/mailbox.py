"""`errand mailbox`: which outcomes of subagents wait in a conversation."""

from typing import Any

import click

from cli.client.api import Api, part
from cli.options import remote
from cli.render.output import PROGRAM, age, emit, note, one_line, table


@click.command()
@click.argument("conversation_id")
@click.option("--live", is_flag=True, help="Ask the running conversation itself instead of the database.")
@click.option("--all", "everything", is_flag=True, help="Also what was delivered already.")
@remote
def mailbox(api: Api, conversation_id: str, live: bool, everything: bool, as_json: bool) -> None:
    """Show the outcomes of subagents that wait until somebody fires them.

    \b
    Examples:
      ./errand mailbox ID
      ./errand mailbox ID --all --json | jq -r '.items[].source_session_id'
    """
    page = read_mailbox(api, conversation_id, live=live, everything=everything)
    if as_json:
        emit(page)
    else:
        show_mailbox(page)
        if any(not message["delivered_to"] for message in page["items"]):
            note(f"deliver them: {PROGRAM} fire {conversation_id}")


def read_mailbox(api: Api, conversation_id: str, *, live: bool = False, everything: bool = False) -> dict[str, Any]:
    page: dict[str, Any] = api.get(
        f"/conversations/{part(conversation_id)}/mailbox",
        live="true" if live else None,
        all="true" if everything else None,
    )
    return page


def show_mailbox(page: dict[str, Any]) -> None:
    if not page["items"]:
        note("the mailbox is empty")
        return
    rows = [
        [
            one_line(message["subagent_name"]),
            click.style("failed", fg="red") if message["source_type"] == "subagent_failed" else "result",
            message["source_session_id"],
            age(message["created_at"]),
            message["delivered_to"] or "waiting",
        ]
        for message in page["items"]
    ]
    table(["SUBAGENT", "OUTCOME", "SESSION", "POSTED", "DELIVERED TO"], rows)
