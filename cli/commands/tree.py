"""`errand tree`: a conversation's threads and sessions, and what each has used."""

from typing import Any

import click

from cli.client.api import Api, part
from cli.options import remote
from cli.render.output import clean, dim, emit, one_line, status_word


@click.command()
@click.argument("conversation_id")
@remote
def tree(api: Api, conversation_id: str, as_json: bool) -> None:
    """Show a conversation as a tree: its threads, their sessions, what they used, what waits in the mailbox.

    \b
    Examples:
      ./errand tree ID
      ./errand tree ID --json | jq .usage
    """
    found = read_tree(api, conversation_id)
    if as_json:
        emit(found)
    else:
        show_tree(found)


def read_tree(api: Api, conversation_id: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"/conversations/{part(conversation_id)}")
    return found


def show_tree(found: dict[str, Any]) -> None:
    waiting = found["mailbox"]["pending_count"]
    mail = click.style(f"  [{waiting} waiting]", fg="magenta") if waiting else ""
    closed = "" if found["status"] == "open" else f"  ({found['status']})"
    click.echo(click.style(f"{found['conversation_id']}  {one_line(found['title'])}", bold=True) + closed + mail)
    _branches(found["sessions"], "")
    if not found["complete"]:
        click.echo(dim("(only the newest sessions are shown)"))
    for model, used in found["usage"].items():
        tokens = sum(used[kind] for kind in used if kind.endswith("_tokens"))
        cost = "cost unknown" if used["cost_usd"] is None else f"${used['cost_usd']:.4f}"
        click.echo(dim(f"{clean(model)}: {used['requests']:,} calls, {tokens:,} tokens, {cost}"))


def _branches(sessions: list[dict[str, Any]], indent: str) -> None:
    for session in sessions:
        last = session is sessions[-1]
        name = session["name"] or session["agent"]
        who = name if name == session["agent"] else f"{name} ({session['agent']})"
        ending = f" ({session['reason']})" if session["reason"] else ""
        click.echo(
            dim(indent + ("└─ " if last else "├─ "))
            + f"{one_line(who)}  {session['session_id']}  {status_word(session['status'])}{ending}"
            + dim(f"  {one_line(session['title'], 80)}")
        )
        _branches(session["children"], indent + ("   " if last else "│  "))
