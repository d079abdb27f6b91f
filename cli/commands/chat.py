"""`errand chat`: a conversation in the terminal or in a script."""

import sys
from pathlib import Path
from typing import Any

import click
from errand.models import ConversationPage

from cli.answering import Prompt, read_line
from cli.api import Api, parse
from cli.chat.loop import Brought, Chat
from cli.errors import NotFoundError
from cli.ids import AgentNameType, ConversationIdType
from cli.options import no_input_option, patience_option, remote, settings, work_options
from cli.render.output import age, one_line, table
from cli.trees import pack_folder

LISTED = 20


@click.command()
@click.option(
    "--agent", type=AgentNameType(), help="The agent to talk to.  [default: assistant, or the conversation's own]"
)
@click.option("--conversation", "conversation_id", type=ConversationIdType(), help="Continue this conversation.")
@click.option("--continue", "continue_", is_flag=True, help="Continue the conversation that was used last.")
@click.option("--resume", is_flag=True, help="Choose a conversation from a list.")
@work_options
@no_input_option
@patience_option
@remote
def chat(
    api: Api,
    agent: str | None,
    conversation_id: str | None,
    continue_: bool,
    resume: bool,
    files: tuple[Path, ...],
    folders: tuple[Path, ...],
    permissions: tuple[dict[str, str], ...],
    no_input: bool,
    patience: int,
    as_json: bool,
    **limits: Any,
) -> None:
    """Talk with an agent, line by line, and see what it and its subagents do.

    Type /help for the commands. A question of the agent is answered by typing, an approval by y, a, n or e. Ctrl-C
    stops watching the answer, which continues, and /watch returns to it; Ctrl-D leaves. From a pipe each line waits for
    the answer to the line before, /wait for all subagents, and the exit code is that of the last answer.

    --file and --dir go along with the first message only, because the conversation keeps its files. --model,
    --permission, --ttl and --max-cost hold for the answer to each message of this chat, not for those that /fire
    begins.

    \b
    Examples:
      ./errand chat
      ./errand chat --dir . --permission "bash:rm *=deny" --max-cost 2
      ./errand chat --continue
      ./errand chat --conversation ID
      printf 'Ask the researcher to look around\\n/wait\\n/fire\\n' | ./errand chat
      echo "Compute 5 primes" | ./errand chat --json | jq -r 'select(.type == "message") | .text'
    """
    if sum(map(bool, (conversation_id, continue_, resume))) > 1:
        raise click.UsageError("give only one of --conversation, --continue and --resume")
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if resume and not terminal:
        raise click.UsageError("--resume asks which one, which needs a terminal; give --conversation ID")
    if continue_ or resume:
        conversation_id = _choose(api, ask=resume)
    brought = Brought(
        files=list(files),
        packed=[pack_folder(folder, settings()) for folder in folders],
        config={name: value for name, value in limits.items() if value is not None},
        permissions=list(permissions),
    )
    # its own connection, because another thread reads the events while this one sends
    with Api.like(api) as feed:
        Chat(api, feed, agent, conversation_id, patience / 1_000, as_json, terminal, no_input, brought).run()


def _choose(api: Api, *, ask: bool) -> str:
    """The user's own conversation that changed last, or the one that they pick."""
    answer = api.get("/conversations", order="updated", own="true", status="open", limit=LISTED if ask else 1)
    found = parse(ConversationPage, answer).items
    if not found:
        raise NotFoundError("there is no conversation yet; `chat` begins one")
    if not ask:
        return found[0].conversation_id
    rows = [[str(n), age(one.updated_at), one_line(one.title)] for n, one in enumerate(found, start=1)]
    table(["", "UPDATED", "TITLE"], rows)
    while True:
        typed = read_line(Prompt("Which one", default="1")).strip()
        if typed.isdecimal() and 0 < int(typed) <= len(found):
            return found[int(typed) - 1].conversation_id
        click.echo(f"Type a number from 1 to {len(found)}, or press Ctrl-C.")
