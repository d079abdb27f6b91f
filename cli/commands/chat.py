"""`errand chat`: a conversation in the terminal or in a script."""

import sys

import click

from cli.chat.loop import Chat
from cli.client.api import Api
from cli.options import patience_option, remote


@click.command()
@click.option("--agent", help="The agent to talk to.  [default: assistant, or the conversation's own]")
@click.option("--conversation", "conversation_id", help="Continue this conversation.")
@patience_option
@remote
def chat(api: Api, agent: str | None, conversation_id: str | None, patience: int, as_json: bool) -> None:
    """Talk with an agent, line by line, and see what it and its subagents do.

    Type /help for the commands. Ctrl-C stops watching the answer, which continues; Ctrl-D leaves. From a pipe each line
    waits for the answer to the line before, /wait for all subagents, and the exit code is that of the last answer.

    \b
    Examples:
      ./errand chat
      ./errand chat --conversation ID
      printf 'Ask the researcher to look around\\n/wait\\n/fire\\n' | ./errand chat
      echo "Compute 5 primes" | ./errand chat --json | jq -r 'select(.type == "message") | .text'
    """
    with Api.like(api) as feed:
        Chat(api, feed, agent, conversation_id, patience / 1_000, as_json, sys.stdin.isatty()).run()
