"""Typing in a chat: line editing, history, several lines and completion, while answers appear above the prompt."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout

from cli.chat.commands import COMMANDS
from cli.ids import chat_history

MOST_COMPLETIONS = 50
# the terminal is restored even if the prompt does not end
LEAVE_SECONDS = 2.0


class TerminalInput:
    """One prompt for the whole chat, in a thread with its own event loop: between two lines there is no moment in which
    the terminal itself would show what is typed, secrets too, or turn Ctrl-C into a signal."""

    def __init__(self, put: Callable[[str, Any], None]) -> None:
        """`put` is called with each `typed` line, and the request that the prompt asked for, and with `interrupt`."""
        self._put = put
        self._message = "> "
        self._secret = False
        self._asked: str | None = None  # the id of the request that the prompt asks for; None: for a message
        self._draft = ""  # of a message, while the prompt asks for something else
        self._interrupted = False  # by a Ctrl-C that was not handled yet
        self._loop = asyncio.new_event_loop()
        self._session: PromptSession[str] = PromptSession(
            input=RawInput(sys.stdin),
            message=lambda: ANSI(self._message),
            history=_history(),
            multiline=True,  # what is pasted may have several lines
            key_bindings=self._keys(),
            is_password=Condition(lambda: self._secret),
            completer=ChatCompleter([f"/{name}" for name in COMMANDS]),
            complete_while_typing=False,
            prompt_continuation="… ",
        )

    def show(self, message: str, *, secret: bool, asked: str | None, default: str) -> None:
        """Set the text before the cursor, whether the typed text after it may be shown, what it answers, and the text
        to edit."""
        # the prompt belongs to the thread of the loop, and is not safe for others
        self._loop.call_soon_threadsafe(self._update, message, secret, asked, default)

    def _update(self, message: str, secret: bool, asked: str | None, default: str) -> None:
        buffer = self._session.default_buffer
        self._message, self._secret, self._interrupted = message, secret, False
        if asked != self._asked:  # what is half typed must not answer another question, nor become a message
            if self._asked is None:
                self._draft = buffer.text
            self._asked = asked
            buffer.reset(Document(self._draft if asked is None else default))
        elif default:
            buffer.reset(Document(default))
        self._session.app.invalidate()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While lines are read; afterwards the terminal is as it was before."""
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        with patch_stdout(raw=True):
            reading = asyncio.run_coroutine_threadsafe(self._session.prompt_async(), self._loop)
            reading.add_done_callback(self._end)
            try:
                yield
            finally:
                self._loop.call_soon_threadsafe(self._leave)
                with suppress(TimeoutError, EOFError):
                    reading.result(LEAVE_SECONDS)
        # in a separate task: output that was scheduled before is written before
        asyncio.run_coroutine_threadsafe(self._stop_loop(), self._loop)
        thread.join(LEAVE_SECONDS)

    def _end(self, _: Future[str]) -> None:
        self._put("typed", (None, None))  # the terminal has gone away, or the chat is being left

    def _leave(self) -> None:
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(exception=EOFError())

    async def _stop_loop(self) -> None:
        self._loop.stop()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        @keys.add("c-j")  # Enter typed ahead, before the prompt appeared
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.text_before_cursor.endswith("\\"):  # the line continues, as in a shell
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
                return
            line = buffer.text
            click.echo(self._message + ("" if self._secret else line))
            buffer.reset(append_to_history=not self._secret)  # the history is a file
            self._put("typed", (line, self._asked))

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if self._interrupted:  # what is being done takes too long for somebody
                os.kill(os.getpid(), signal.SIGINT)
            self._interrupted = True
            self._put("interrupt", None)

        @keys.add("c-d")
        def _(event: KeyPressEvent) -> None:
            if not event.current_buffer.text:
                self._put("typed", (None, None))

        return keys


class RawInput(Vt100Input):
    """Stays raw while output is written above the prompt, for the same reason."""

    def cooked_mode(self) -> AbstractContextManager[None]:
        return nullcontext()


def _history() -> History:
    file = chat_history()
    try:
        if file:
            # before the library opens it, which would create it readable for others
            file.touch(mode=0o600)
            return FileHistory(str(file))
    except OSError:
        pass
    return InMemoryHistory()


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
