"""The lines that are typed, or come through a pipe."""

import io
import os
from collections.abc import Iterator
from typing import IO


def lines(stream: IO[str]) -> Iterator[str]:
    """Without their ends. Read past Python's own buffer, whose lock a waiting thread would hold at exit."""
    try:
        descriptor = stream.fileno()
    except (OSError, io.UnsupportedOperation):
        yield from (line.rstrip("\r\n") for line in stream)
        return
    rest = b""
    while piece := os.read(descriptor, 65_536):
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode(errors="replace").rstrip("\r") for line in whole)
    if rest:
        yield rest.decode(errors="replace")
