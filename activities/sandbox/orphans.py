"""Kills the init process that bubblewrap leaves if it is killed while it starts, and that would wait without end."""

import contextlib
import os
import signal
from pathlib import Path

_PROC = Path("/proc")
_OURS = [b"--hostname", b"sandbox"]


def bury_orphans() -> int:
    """Kill stray inits. A live sandbox's init has bubblewrap as its parent; `--die-with-parent` works only once it is
    set up."""
    return sum(_bury(int(place.name)) for place in _PROC.glob("[0-9]*"))


def _bury(pid: int) -> bool:
    with contextlib.suppress(OSError, StopIteration):
        handle = os.pidfd_open(pid)  # taken before the check, so that the pid cannot be reused by another process
        try:
            if not _is_orphan(pid):
                return False
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True
        finally:
            os.close(handle)
    return False


def _is_orphan(pid: int) -> bool:
    arguments = _arguments(pid)
    if not _is_bwrap(arguments) or arguments[(at := arguments.index(_OURS[0])) : at + 2] != _OURS:
        return False
    status = dict(
        line.split(":\t", 1) for line in (_PROC / str(pid) / "status").read_text().splitlines() if ":\t" in line
    )
    is_init = status["NSpid"].split()[-1] == "1" and len(status["NSpid"].split()) > 1
    return is_init and not _is_bwrap(_arguments(int(status["PPid"])))


def _arguments(pid: int) -> list[bytes]:
    return (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")


def _is_bwrap(arguments: list[bytes]) -> bool:
    return arguments[0].rpartition(b"/")[2] == b"bwrap" and _OURS[0] in arguments
