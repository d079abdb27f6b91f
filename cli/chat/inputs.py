"""The inputs of a chat: typed lines and events of the conversation, each from a thread, in one queue."""

import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from cli.api import Api, follow_conversation
from cli.errors import CliError

if TYPE_CHECKING:
    from cli.chat.terminal_input import TerminalInput
import io
from typing import IO


class ChatInputs:
    """Collects inputs. The threads only put items into the queue."""

    def __init__(self, feed: Api, patience: float, terminal: bool) -> None:
        self._feed = feed
        self._patience = patience
        # a SimpleQueue, because its put may be called in a signal handler that interrupted a put
        self._queue: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._signals = 0  # not handled yet
        self._asked: str | None = None  # the request that the prompt asks for
        self._typing = self._terminal_input() if terminal else None

    def get(self) -> tuple[str, Any]:
        """The next line, event, note, error or Ctrl-C, with its kind: `interrupt` ended a prompt, `signal` did not.

        A line that was entered on a terminal while something else was asked for is a `message` or a `late_answer`.
        """
        kind, value = self._queue.get()
        if kind == "signal":
            self._signals = 0
        elif kind == "typed":
            line, asked = value
            expected = line is None or asked == self._asked
            return "line" if expected else "message" if asked is None else "late_answer", line
        return kind, value

    def show(self, message: str, *, secret: bool, asked: str | None) -> None:
        """Set the text before the cursor, whether the typed text after it is a secret, and what it answers."""
        self._asked = asked
        if self._typing:
            self._typing.show(message, secret=secret, asked=asked)

    def note_handled(self, default: str) -> None:
        if self._typing:
            self._typing.note_handled(default)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The period in which lines are read; on a terminal all output appears above the prompt."""
        if self._typing is None:
            # a daemon, because a read from a pipe cannot be interrupted at the end of the chat
            threading.Thread(target=self._read, daemon=True).start()
            yield
            return
        before = signal.signal(signal.SIGINT, self._queue_signal)
        try:
            with self._typing.reading():
                yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _queue_signal(self, *_: object) -> None:
        """Ctrl-C while no prompt is there to read it: it waits its turn like everything else that is typed.

        Raised in the middle of a step it would lose the line that is being handled. Only the second one is: the step
        takes too long for somebody.
        """
        if self._signals:
            raise KeyboardInterrupt
        self._signals += 1
        with suppress(OSError):  # as a terminal shows it; anything else could wait for a lock that this thread holds
            os.write(2, b"^C\n")
        self._queue.put(("signal", None))

    def follow(self, conversation_id: str, after: int) -> None:
        threading.Thread(target=self._follow, args=(conversation_id, after), daemon=True).start()

    def _terminal_input(self) -> "TerminalInput":
        from cli.chat.terminal_input import TerminalInput  # slow to import, and only for terminals

        return TerminalInput(
            entered=lambda line, asked: self._queue.put(("typed", (line, asked))),
            interrupted=lambda: self._queue.put(("interrupt", None)),
        )

    def _follow(self, conversation_id: str, after: int) -> None:
        def notify(text: str) -> None:
            self._queue.put(("note", text))

        try:
            for event in follow_conversation(
                self._feed, conversation_id, after=after, patience=self._patience, notify=notify
            ):
                self._queue.put(("event", event))
        except CliError as error:
            # raised in the main thread later, because here it would only end this thread
            self._queue.put(("error", error))

    def _read(self) -> None:
        for line in stdin_lines(sys.stdin):
            self._queue.put(("line", line))
        self._queue.put(("line", None))


# lines from a pipe, read in a thread


def stdin_lines(stream: IO[str]) -> Iterator[str]:
    """Yield lines without their line ends.

    It bypasses Python's own buffer: a thread that waits there holds its lock, and the interpreter could not exit.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, io.UnsupportedOperation):
        yield from (line.rstrip("\r\n") for line in stream)
        return
    rest = b""
    while chunk := os.read(descriptor, 65_536):
        # split as bytes: a character of several bytes may be cut between two reads
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode(errors="replace").rstrip("\r") for line in whole)
    if rest:
        yield rest.decode(errors="replace")
