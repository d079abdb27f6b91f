"""`errand conversations`, `tree`, `mailbox`, `fire`, `fork`: conversations, their sessions and their mailbox."""

import shlex
from typing import Any

import click
from errand.models import (
    Conversation,
    ConversationPage,
    ConversationSummary,
    MailboxPage,
    SessionBranch,
    SessionHandle,
)

from cli.api import Api, parse, segment
from cli.ids import ConversationIdType, TaskId, write_last
from cli.options import detach_option, page_options, patience_option, remote
from cli.render.answers import print_answer, print_list
from cli.render.output import PROGRAM, age, clean, dim, dollars, emit, note, one_line, style_status, table
from cli.watch import watch_or_detach
from domain.amounts import format_count


@click.command()
@click.option("--search", "query", help="Only conversations that contain all of these words.")
@page_options("Conversations")
@remote
def conversations(api: Api, query: str | None, limit: int, cursor: str | None, as_json: bool) -> None:
    """List conversations, newest first.

    \b
    Examples:
      ./errand conversations
      ./errand conversations --search "parser crash" --json | jq -r '.items[].conversation_id'
    """
    answer = api.get("/conversations", q=query, limit=limit, cursor=cursor)
    columns, more = ["CONVERSATION", "STATUS", "MAIL", "UPDATED", "TITLE"], f"conversations --limit {limit}"
    more += f" --search {shlex.quote(query)}" if query else ""
    print_list(answer, as_json, ConversationPage, columns, _row, empty="no conversations", more=more)


def _row(item: ConversationSummary) -> list[str]:
    mail = click.style(str(item.pending_count), fg="magenta") if item.pending_count else ""
    return [item.conversation_id, item.status, mail, age(item.updated_at), item.title]


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
    print_answer(api.get(f"/conversations/{segment(conversation_id)}"), as_json, Conversation, show_tree)


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
        click.echo(dim(f"{clean(model)}: {format_count(used.requests, 'call')}, {used.tokens:,} tokens, {cost}"))


def _show_sessions(sessions: list[SessionBranch], indent: str) -> None:
    for session in sessions:
        last = session is sessions[-1]
        agent = f"{session.agent} → {session.handed_to}" if session.handed_to else session.agent
        label = agent if session.name in (None, session.agent) else f"{session.name} ({agent})"
        reason = f" ({session.reason})" if session.reason else ""
        click.echo(
            dim(indent + ("└─ " if last else "├─ "))
            + f"{one_line(label)}  {session.session_id}  {style_status(session.status)}{reason}"
            + dim(f"  {one_line(session.title, 80)}")
        )
        _show_sessions(session.children, indent + ("   " if last else "│  "))


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
    rows = []
    for one in messages:
        outcome = click.style("failed", fg="red") if one.source_type == "subagent_failed" else "result"
        whom = one.delivered_to or "waiting"
        rows.append([one_line(one.subagent_name), outcome, one.source_session_id, age(one.created_at), whom])
    table(["SUBAGENT", "OUTCOME", "SESSION", "POSTED", "DELIVERED TO"], rows)
    return any(not message.delivered_to for message in messages)


@click.command()
@click.argument("conversation_id", type=ConversationIdType())
@click.argument("text", metavar="[INPUT]", required=False)
@click.option("--queue", is_flag=True, help="If a session is running in the conversation, fire after it has ended.")
@detach_option
@patience_option
@remote
def fire(
    api: Api, conversation_id: str, text: str | None, queue: bool, detach: bool, patience: int, as_json: bool
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
    watch_or_detach(api, session_id, answer, detach=detach, patience_ms=patience, as_json=as_json, action="Fired")


@click.command()
@click.argument("session_id", type=TaskId())
@click.option("--input", "text", help="Continue with this message; without it the fork waits for its first message.")
@click.option("--agent", help="With --input: another agent than the session's own.")
@detach_option
@patience_option
@remote
def fork(
    api: Api, session_id: str, text: str | None, agent: str | None, detach: bool, patience: int, as_json: bool
) -> None:
    """Start a new conversation with the history and files of a finished session; the old one stays as it is.

    \b
    Examples:
      ./errand fork SESSION
      ./errand fork SESSION --input "The same, but shorter"
    """
    if text is not None:
        body = {"fork_from": session_id, "input": text, "transport": "stream"} | ({"agent": agent} if agent else {})
        answer = api.post("/conversations/run", body)
        new = parse(SessionHandle, answer).session_id
        watch_or_detach(api, new, answer, detach=detach, patience_ms=patience, as_json=as_json, action="Forked")
        return
    origin = api.get(f"/sessions/{segment(session_id)}")["conversation_id"]
    answer = api.post(f"/conversations/{segment(origin)}/fork", {"from_session": session_id})
    new = parse(SessionHandle, answer).session_id
    write_last(api.address, new)
    if as_json:
        emit(answer)
    else:
        click.echo(new)
        note(f"Continue with: {PROGRAM} chat --conversation {new}")
