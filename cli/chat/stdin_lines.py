"""Reading lines from a terminal or a pipe in a thread."""

import io
import os
from collections.abc import Iterator
from typing import IO


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
