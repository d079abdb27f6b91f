"""`errand conversations`: list conversations."""

import click
from errand.models import ConversationPage

from cli.api import Api, parse
from cli.options import remote
from cli.render.output import PROGRAM, age, emit, note, table


@click.command()
@click.option("--search", "query", help="Only conversations that contain all of these words.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Conversations on one page.")
@click.option("--cursor", help="The cursor of the next page.")
@remote
def conversations(api: Api, query: str | None, limit: int, cursor: str | None, as_json: bool) -> None:
    """List conversations, newest first.

    \b
    Examples:
      ./errand conversations
      ./errand conversations --search "parser crash" --json | jq -r '.items[].conversation_id'
    """
    answer = api.get("/conversations", q=query, limit=limit, cursor=cursor)
    if as_json:
        emit(answer)
        return
    page = parse(ConversationPage, answer)
    if not page.items:
        note("no conversations")
        return
    rows = [
        [
            item.conversation_id,
            item.status,
            click.style(str(item.pending_count), fg="magenta") if item.pending_count else "",
            age(item.updated_at),
            item.title,
        ]
        for item in page.items
    ]
    table(["CONVERSATION", "STATUS", "MAIL", "UPDATED", "TITLE"], rows)
    if page.next_cursor:
        note(f"more: {PROGRAM} conversations --limit {limit} --cursor {page.next_cursor}")
