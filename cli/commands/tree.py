"""`errand tree`: the sessions of a conversation as a tree, with their usage."""

import click
from errand.models import Conversation, SessionBranch

from cli.api import Api, parse, segment
from cli.ids import ConversationIdType
from cli.options import remote
from cli.render.output import clean, dim, dollars, emit, one_line, styled_status
from domain.amounts import counted


@click.command()
@click.argument("conversation_id", type=ConversationIdType())
@remote
def tree(api: Api, conversation_id: str, as_json: bool) -> None:
    """Show the sessions of a conversation as a tree, their usage, and the number of waiting outcomes.

    \b
    Examples:
      ./errand tree ID
      ./errand tree ID --json | jq .usage
    """
    answer = api.get(f"/conversations/{segment(conversation_id)}")
    if as_json:
        emit(answer)
    else:
        show_tree(parse(Conversation, answer))


def show_tree(conversation: Conversation) -> None:
    waiting = conversation.mailbox.pending_count
    mail = click.style(f"  [{waiting} waiting]", fg="magenta") if waiting else ""
    status = "" if conversation.status == "open" else f"  ({conversation.status})"
    title = f"{conversation.conversation_id}  {one_line(conversation.title)}"
    click.echo(click.style(title, bold=True) + status + mail)
    _show_sessions(conversation.sessions, "")
    if not conversation.complete:
        click.echo(dim("(only the newest sessions are shown)"))
    for model, used in conversation.usage.items():
        cost = dollars(used.cost_usd)
        click.echo(dim(f"{clean(model)}: {counted(used.requests, 'call')}, {used.tokens:,} tokens, {cost}"))


def _show_sessions(sessions: list[SessionBranch], indent: str) -> None:
    for session in sessions:
        last = session is sessions[-1]
        agent = f"{session.agent} → {session.handed_to}" if session.handed_to else session.agent
        label = agent if session.name in (None, session.agent) else f"{session.name} ({agent})"
        reason = f" ({session.reason})" if session.reason else ""
        click.echo(
            dim(indent + ("└─ " if last else "├─ "))
            + f"{one_line(label)}  {session.session_id}  {styled_status(session.status)}{reason}"
            + dim(f"  {one_line(session.title, 80)}")
        )
        _show_sessions(session.children, indent + ("   " if last else "│  "))
