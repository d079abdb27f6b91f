"""Runs a command of ours in a real pseudo-terminal: tests type into it and read what a person would see."""

import ctypes
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import Self

from settings import ROOT

ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-B0-2]|[=>78])")
ENTER, CTRL_C, CTRL_D, ALT_ENTER, UP, TAB = "\r", "\x03", "\x04", "\x1b\r", "\x1b[A", "\t"
PATIENCE = 60.0
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2  # numbers of Linux
LFLAG = 3  # index in the list that tcgetattr returns


class Terminal:
    """`with Terminal("chat", env=stack.env) as terminal: terminal.type("hello"); terminal.expect("Hello")`."""

    def __init__(
        self,
        *args: str,
        env: Mapping[str, str],
        cwd: Path = ROOT,
        argv: Sequence[str] | None = None,
        bound_by_modes: bool = False,
    ) -> None:
        """`bound_by_modes`: file modes restrict the command even if root runs the tests."""
        self._argv = argv or (sys.executable, "-m", "cli", *args)
        # this terminal does not report the position of its cursor, so prompt_toolkit would print a warning
        self._env = {**os.environ, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", "PYTHONPATH": str(ROOT)}
        self._env |= {"COLUMNS": "120", "LINES": "40", **env}
        self._cwd = cwd
        self._before_start = _take_terminal_and_drop_rights if bound_by_modes else _take_terminal
        self.raw = ""
        self._read_to = 0

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._process = subprocess.Popen(
            self._argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=self._cwd,
            env=self._env,
            start_new_session=True,
            preexec_fn=self._before_start,
        )
        os.close(slave)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        os.close(self._master)

    @property
    def text(self) -> str:
        """The whole output, without colours and cursor movements."""
        return ESCAPES.sub("", self.raw).replace("\r", "")

    @property
    def echoes(self) -> bool:
        """Whether the terminal itself echoes typed text."""
        return bool(termios.tcgetattr(self._master)[LFLAG] & termios.ECHO)

    def expect(self, wanted: str, seconds: float = PATIENCE) -> str:
        """Wait until this text is shown after the text expected last; return what was shown in between."""
        deadline = time.monotonic() + seconds
        while (found := self.text.find(wanted, self._read_to)) < 0:
            if not self._read(deadline):
                raise AssertionError(f"{wanted!r} was not shown; since the last match:\n{self.text[self._read_to :]}")
        before = self.text[self._read_to : found]
        self._read_to = found + len(wanted)
        return before

    def type(self, text: str, end: str = ENTER) -> None:
        os.write(self._master, (text + end).encode())

    def interrupt(self) -> None:
        """Send Ctrl-C, as the terminal's line discipline or the program in raw mode receives it."""
        self.type("", CTRL_C)

    def exit_code(self, seconds: float = PATIENCE) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        return self._process.wait(max(1.0, deadline - time.monotonic()))

    def _read(self, deadline: float) -> bool:
        """Read what is there; False at the end or at the deadline."""
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self._master], [], [], left)[0]:
            return False
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # Linux reports the end of a terminal as an error
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)


def _take_terminal() -> None:
    ioctl(0, termios.TIOCSCTTY, 0)


def _take_terminal_and_drop_rights() -> None:
    _take_terminal()
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "the right to read every file cannot be dropped")
