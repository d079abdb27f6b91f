"""`errand conversations`: the list of conversations."""

import click

from cli.client.api import Api
from cli.options import remote
from cli.render.output import PROGRAM, age, emit, note, table


@click.command()
@click.option("--search", "words", help="Only those in which all these words occur.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Conversations on one page.")
@click.option("--cursor", help="Where the last page ended.")
@remote
def conversations(api: Api, words: str | None, limit: int, cursor: str | None, as_json: bool) -> None:
    """List conversations, the newest first.

    \b
    Examples:
      ./errand conversations
      ./errand conversations --search "parser crash" --json | jq -r '.items[].conversation_id'
    """
    page = api.get("/conversations", q=words, limit=limit, cursor=cursor)
    if as_json:
        emit(page)
        return
    if not page["items"]:
        note("no conversations")
        return
    rows = [
        [
            item["conversation_id"],
            item["status"],
            click.style(str(item["pending_count"]), fg="magenta") if item["pending_count"] else "",
            age(item["updated_at"]),
            item["title"],
        ]
        for item in page["items"]
    ]
    table(["CONVERSATION", "STATUS", "MAIL", "UPDATED", "TITLE"], rows)
    if page.get("next_cursor"):
        note(f"more: {PROGRAM} conversations --limit {limit} --cursor {page['next_cursor']}")
