"""What can be typed in a chat beside messages: each command is one function and one line in COMMANDS."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from cli.client.api import part
from cli.commands.mailbox import read_mailbox, show_mailbox
from cli.commands.tree import read_tree, show_tree
from cli.render.output import emit, table

if TYPE_CHECKING:
    from cli.chat.loop import Chat

Command = Callable[["Chat", str], None]


def fire(chat: "Chat", text: str) -> None:
    body = {"if_busy": "queue"} | ({"input": text} if text else {})
    chat.expect(chat.api.post(f"/conversations/{part(chat.conversation())}/fire", body))


def mailbox(chat: "Chat", _: str) -> None:
    page = read_mailbox(chat.api, chat.conversation())
    emit(page) if chat.as_json else show_mailbox(page)


def tree(chat: "Chat", _: str) -> None:
    found = read_tree(chat.api, chat.conversation())
    emit(found) if chat.as_json else show_tree(found)


def agents(chat: "Chat", _: str) -> None:
    page = chat.api.get("/agents")
    if chat.as_json:
        emit(page)
    else:
        table(["AGENT", "WHAT IT DOES"], [[agent["name"], agent["description"]] for agent in page["items"]])


def steer(chat: "Chat", text: str) -> None:
    if not text:
        raise click.UsageError("write what it should know: /steer TEXT")
    chat.api.post(f"/tasks/{part(chat.running())}/steer", {"message": text})
    chat.say("Sent; it reads it before its next step.")


def interrupt(chat: "Chat", _: str) -> None:
    chat.api.post(f"/tasks/{part(chat.running())}/interrupt", {})


def wait(chat: "Chat", _: str) -> None:
    chat.wait_for_subagents()


def help(chat: "Chat", _: str) -> None:
    for name, (usage, about, _run) in COMMANDS.items():
        chat.say(f"  {f'/{name} {usage}'.strip():<18} {about}")
    chat.say("  anything else is a message; while an answer is being written it is queued behind it")


def quit(chat: "Chat", _: str) -> None:
    chat.leave()


COMMANDS: dict[str, tuple[str, str, Command]] = {
    "fire": ("[TEXT]", "deliver what waits in the mailbox, with TEXT if you add some", fire),
    "mailbox": ("", "what waits", mailbox),
    "tree": ("", "the threads and sessions of this conversation", tree),
    "agents": ("", "who there is", agents),
    "steer": ("TEXT", "tell the running answer something", steer),
    "interrupt": ("", "stop the running answer and keep what it has", interrupt),
    "wait": ("", "read on only when all subagents have ended", wait),
    "help": ("", "this list", help),
    "quit": ("", "leave; what runs goes on (Ctrl-D does the same)", quit),
}
AT_ONCE = frozenset({"steer", "interrupt"})  # of use only while an answer is being written
