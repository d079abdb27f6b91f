"""Typing in a chat: line editing, history, several lines and completion, while answers appear above the prompt."""

import asyncio
import os
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

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
LFLAG = 3  # in the list of termios.tcgetattr


class PromptInterrupted(Exception):
    """Ctrl-C was typed at the prompt."""


class TerminalInput:
    """Reads in a separate thread. It waits until each line was handled, because that may put text into the next one.

    One event loop serves all prompts. With a loop for each, other threads would meet a closed one whenever a line was
    just entered: a changed prompt would end the chat, and output would be lost.
    """

    def __init__(self, entered: Callable[[str | None, str | None], None], interrupted: Callable[[], None]) -> None:
        """`entered` is called with each line, and with the request that the prompt asked for when it was entered."""
        self._entered = entered
        self._interrupted = interrupted
        self._message = "> "
        self._secret = False
        self._asked: str | None = None  # the id of the request that the prompt asks for; None: for a message
        self._entered_for: str | None = None
        self._draft = ""  # of a message, while the prompt asks for something else
        self._loop = asyncio.new_event_loop()
        self._handled: asyncio.Queue[str] = asyncio.Queue()
        self._stopping = False
        self._session: PromptSession[str] | None = None

    def show(self, message: str, *, secret: bool = False, asked: str | None = None) -> None:
        """Set the text before the cursor, whether the typed text after it may be shown, and what it answers."""
        if self._session:
            # the prompt belongs to the thread of the loop, and is not safe for others
            self._loop.call_soon_threadsafe(self._update, self._session, message, secret, asked)
        else:
            self._message, self._secret, self._asked = message, secret, asked

    def _update(self, session: PromptSession[str], message: str, secret: bool, asked: str | None) -> None:
        self._message, self._secret = message, secret
        if asked != self._asked:  # what is half typed must not answer another question, nor become a message
            typing = session.app.is_running and not session.app.is_done
            if self._asked is None and typing:
                self._draft = session.default_buffer.text
            self._asked = asked
            if typing:
                session.default_buffer.reset(Document(self._take_draft()))
        session.app.invalidate()

    def _take_draft(self) -> str:
        """The message that was being typed before the question, once the prompt asks for messages again."""
        if self._asked is not None:
            return ""
        draft, self._draft = self._draft, ""
        return draft

    def note_handled(self, default: str = "") -> None:
        """Continue after a line was handled; the next one begins with `default`."""
        self._loop.call_soon_threadsafe(self._handled.put_nowait, default)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While lines are read; afterwards the terminal is as it was before."""
        session: PromptSession[str] = PromptSession(
            input=RawInput(sys.stdin),
            message=lambda: ANSI(self._message),
            history=_history(),
            multiline=True,  # what is pasted may have several lines
            key_bindings=_keys(self._enter),
            is_password=Condition(lambda: self._secret),
            completer=ChatCompleter([f"/{name}" for name in COMMANDS]),
            complete_while_typing=False,
            prompt_continuation="… ",
            interrupt_exception=PromptInterrupted,
        )
        self._session = session
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        with _no_echo():
            with patch_stdout(raw=True):
                reading = asyncio.run_coroutine_threadsafe(self._read(session), self._loop)
                try:
                    yield
                finally:
                    self._loop.call_soon_threadsafe(self._leave, session)
                    with suppress(TimeoutError):
                        reading.result(LEAVE_SECONDS)
            # in a separate task: output that was scheduled before is written before
            asyncio.run_coroutine_threadsafe(self._stop_loop(), self._loop)
            thread.join(LEAVE_SECONDS)

    async def _read(self, session: PromptSession[str]) -> None:
        default = ""
        try:
            while not self._stopping:
                try:
                    line = await session.prompt_async(default=default)
                except PromptInterrupted:
                    self._interrupted()
                else:
                    self._entered(line, self._entered_for)
                default = await self._handled.get() or self._take_draft()
        except EOFError:  # Ctrl-D
            pass
        finally:
            if not self._stopping:
                self._entered(None, None)

    def _enter(self) -> bool:
        """A line is entered; returns whether it is a secret."""
        # now, and not when the line is handled: the prompt may ask for something else by then
        self._entered_for = self._asked
        return self._secret

    def _leave(self, session: PromptSession[str]) -> None:
        self._stopping = True
        self._handled.put_nowait("")
        if session.app.is_running and not session.app.is_done:
            session.app.exit(exception=EOFError())

    async def _stop_loop(self) -> None:
        self._loop.stop()


class RawInput(Vt100Input):
    """Stays raw while output is written above the prompt: otherwise the terminal itself would echo what is typed then,
    secrets too, and Ctrl-C would be a signal although a prompt is there."""

    def cooked_mode(self) -> AbstractContextManager[None]:
        return nullcontext()


@contextmanager
def _no_echo() -> Iterator[None]:
    """What is typed before the prompt is back appears in the prompt. The terminal's own echo would show it earlier and
    once more, and secrets too."""
    before = termios.tcgetattr(sys.stdin)
    silent = termios.tcgetattr(sys.stdin)
    silent[LFLAG] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


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


def _keys(enter: Callable[[], bool]) -> KeyBindings:
    """`enter` is called when a line is entered, and returns whether it is a secret."""
    keys = KeyBindings()

    @keys.add("enter")
    @keys.add("c-j")  # Enter typed ahead, before the prompt appeared
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):  # the line continues, as in a shell
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        elif enter():  # a secret: it must not enter the history, which is a file
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
