"""The earlier turns, for a user who returns to a conversation."""

import click
from errand.models import Conversation, Turn, TurnPage

from cli.api import Api, parse, segment
from cli.render.markdown import print_markdown
from cli.render.output import age, clean, dim, one_line, styled_status
from domain.amounts import counted

TURNS_SHOWN = 20


def show_past(api: Api, conversation: Conversation) -> None:
    click.echo(click.style(one_line(conversation.title), bold=True) + dim(f"  {conversation.conversation_id}"))
    turns = _turns(api, conversation.conversation_id)
    if len(turns) > TURNS_SHOWN:
        click.echo(dim(f"({counted(len(turns) - TURNS_SHOWN, 'earlier turn')})"))
    for turn in turns[-TURNS_SHOWN:]:
        text = turn.input if isinstance(turn.input, str) else str(turn.input or "")
        click.echo("\n" + click.style("> ", bold=True) + clean(text) + dim(f"   {age(turn.created_at)}"))
        if turn.output:
            print_markdown(turn.output)
        if turn.status not in ("completed", "working", "submitted"):
            click.echo(styled_status(turn.status) + (f" ({turn.reason})" if turn.reason else ""))
    click.echo()


def _turns(api: Api, conversation_id: str) -> list[Turn]:
    found: list[Turn] = []
    cursor: str | None = None
    while True:
        answer = api.get(f"/conversations/{segment(conversation_id)}/turns", cursor=cursor, limit=200)
        page = parse(TurnPage, answer)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found
