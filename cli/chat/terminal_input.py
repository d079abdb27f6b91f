"""Typing in a chat: line editing, history, several lines and completion, while answers appear above the prompt."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from cli.chat.commands import COMMANDS
from cli.local_state import chat_history

MOST_COMPLETIONS = 50


class TerminalInput:
    """Reads in a thread of its own. It waits until each line was handled, because that may put text into the next
    one."""

    def __init__(self, entered: Callable[[str | None], None], interrupted: Callable[[], None]) -> None:
        self._entered = entered
        self._interrupted = interrupted
        self._message = "> "
        self._secret = False
        self._handled: SimpleQueue[str] = SimpleQueue()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._session: PromptSession[str] | None = None

    def start(self) -> None:
        self._session = PromptSession(
            message=lambda: ANSI(self._message),
            history=_history(),
            multiline=True,  # pasted text may have several lines
            key_bindings=_keys(lambda: self._secret),
            is_password=Condition(lambda: self._secret),
            completer=ChatCompleter([f"/{name}" for name in COMMANDS]),
            complete_while_typing=False,
            prompt_continuation="… ",
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def show(self, message: str, *, secret: bool = False) -> None:
        """Set the text before the cursor, and whether the typed text after it may be shown."""
        self._message, self._secret = message, secret
        if self._session and self._session.app.is_running:
            self._session.app.invalidate()

    def handled(self, default: str = "") -> None:
        """Continue after a line was handled; the next one begins with `default`."""
        self._handled.put(default)

    def stop(self) -> None:
        """Leave the prompt and restore the terminal."""
        self._stopping = True
        self._handled.put("")
        if self._session and (app := self._session.app).is_running and app.loop:
            app.loop.call_soon_threadsafe(lambda: app.exit(exception=EOFError()) if app.is_running else None)
        if self._thread:
            self._thread.join(2)

    def _read(self) -> None:
        assert self._session
        default = ""
        while not self._stopping:
            try:
                line = self._session.prompt(default=default)
            except KeyboardInterrupt:
                self._interrupted()
            except EOFError:
                if not self._stopping:
                    self._entered(None)
                return
            else:
                self._entered(line)
            default = self._handled.get()


def _history() -> History:
    file = chat_history()
    try:
        if file:
            file.touch(mode=0o600)
            return FileHistory(str(file))
    except OSError:
        pass
    return InMemoryHistory()


def _keys(secret: Callable[[], bool]) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    @keys.add("c-j")  # Enter that was typed before the prompt appeared
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):  # the line continues, as in a shell
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        elif secret():  # it must not enter the history, which is a file
            event.app.exit(result=buffer.text)
            buffer.reset()
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


class ChatCompleter(Completer):
    """Commands after a slash; paths after `@` and `/file`."""

    def __init__(self, commands: list[str]) -> None:
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        word = before.split()[-1] if before.split() and not before[-1].isspace() else ""
        if before.startswith("/") and " " not in before:
            yield from (Completion(one, -len(before)) for one in self._commands if one.startswith(before))
        elif word.startswith("@"):
            yield from _paths(word[1:])
        elif before.startswith("/file "):
            yield from _paths(before.removeprefix("/file ").lstrip())


def _paths(typed: str) -> Iterator[Completion]:
    folder, _, start = typed.rpartition("/")
    base = Path(f"{folder}/" if folder or typed.startswith("/") else ".").expanduser()
    try:
        names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in os.scandir(base))
    except OSError:
        return
    fitting = [name for name in names if name.startswith(start) and (start or not name.startswith("."))]
    yield from (Completion(name, -len(start)) for name in fitting[:MOST_COMPLETIONS])
