"""The commands of a chat: each is one function and one line in COMMANDS."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from cli.api import segment
from cli.commands.conversations import read_mailbox, show_mailbox
from cli.render.output import emit

if TYPE_CHECKING:
    from cli.chat.loop import Chat


class ChatCommand(NamedTuple):
    usage: str
    description: str
    run: Callable[["Chat", str], None]


def fire(chat: "Chat", text: str) -> None:
    body = {"if_busy": "queue"} | ({"input": text} if text else {})
    chat.watch_answer(chat.api.post(f"/conversations/{segment(chat.conversation())}/fire", body))


def mailbox(chat: "Chat", _: str) -> None:
    answer = read_mailbox(chat.api, chat.conversation())
    emit(answer) if chat.as_json else show_mailbox(answer)


def steer(chat: "Chat", text: str) -> None:
    if not text:
        raise click.UsageError("give a message: /steer TEXT")
    chat.api.post(f"/tasks/{segment(chat.running())}/steer", {"message": text})
    chat.note("Sent; it is read before the next step.")


def interrupt(chat: "Chat", _: str) -> None:
    chat.api.post(f"/tasks/{segment(chat.running())}/interrupt", {})


def watch(chat: "Chat", _: str) -> None:
    chat.watch_running()


def inbox(chat: "Chat", _: str) -> None:
    chat.load_questions()


def later(chat: "Chat", _: str) -> None:
    chat.leave_question()


def file(chat: "Chat", name: str) -> None:
    path = Path(name).expanduser()
    if not name or not path.is_file():
        raise click.UsageError(f"there is no file {name!r}; write /file PATH" if name else "give a file: /file PATH")
    chat.attach_file(path)
    chat.note(f"{path} goes along with your next message.")


def wait(chat: "Chat", _: str) -> None:
    chat.wait_for_subagents()


def help(chat: "Chat", _: str) -> None:
    for name, command in COMMANDS.items():
        chat.note(f"  {f'/{name} {command.usage}'.strip():<18} {command.description}")
    chat.note("  anything else is a message; @PATH in it attaches a file, Alt-Enter begins a new line")
    chat.note("  while an answer is being written, a message is queued; a question is answered by typing the answer")


def quit(chat: "Chat", _: str) -> None:
    chat.leave()


COMMANDS: dict[str, ChatCommand] = {
    "fire": ChatCommand("[TEXT]", "deliver the outcomes in the mailbox, with TEXT as your message", fire),
    "mailbox": ChatCommand("", "list the outcomes in the mailbox", mailbox),
    "steer": ChatCommand("TEXT", "send a message to the running answer", steer),
    "interrupt": ChatCommand("", "stop the running answer and keep what it has said", interrupt),
    "watch": ChatCommand("", "show the running answer again, after Ctrl-C", watch),
    "inbox": ChatCommand("", "show again what waits for your answer", inbox),
    "later": ChatCommand("", "leave the question open", later),
    "file": ChatCommand("PATH", "attach a file to the next message", file),
    "wait": ChatCommand("", "wait until all subagents have ended", wait),
    "help": ChatCommand("", "show this list", help),
    "quit": ChatCommand("", "leave; running answers continue (Ctrl-D does the same)", quit),
}
IMMEDIATE = frozenset({"steer", "interrupt", "later"})  # useful only while an answer is being written
