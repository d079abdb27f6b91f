"""Who has a port of this machine, as far as Linux shows it: another stack, a process, or another account's."""

import contextlib
import os
import pwd
from pathlib import Path

from deploy.state import command_of

_SHOWN = 80  # characters of a command
_LISTENS = "0A"  # a state in /proc/net/tcp


def claim_of(port: int) -> str:
    """The abstract socket with which a stack claims a port for as long as it runs."""
    return f"errand-port-{port}"


def holder_of(port: int) -> str:
    claims = [row[6] for row in _rows("unix") if row[-1] == f"@{claim_of(port)}"]
    for pid in _pids_of(claims):
        return f"another Errand stack, whose data is in {_data_of(pid)} (pid {pid})"
    if claims:
        return "an Errand stack of another account"
    listeners = [row for row in _rows("tcp") + _rows("tcp6") if row[3] == _LISTENS and row[1].endswith(f":{port:04X}")]
    for pid in _pids_of([row[9] for row in listeners]):
        return f"pid {pid} ({' '.join(command_of(pid).split())[:_SHOWN]})"
    for row in listeners:
        with contextlib.suppress(KeyError):
            return f"a process of the account {pwd.getpwuid(int(row[7])).pw_name}"
    return "another program"


def _rows(table: str) -> list[list[str]]:
    with contextlib.suppress(OSError):
        return [line.split() for line in Path("/proc/net", table).read_text().splitlines()[1:]]
    return []


def _pids_of(inodes: list[str]) -> list[int]:
    """The processes that hold one of these sockets, of those that this account may look into."""
    sockets = {f"socket:[{inode}]" for inode in inodes}
    if not sockets:
        return []
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [pid for pid in pids if not sockets.isdisjoint(_open_files(pid))]


def _data_of(supervisor: int) -> str:
    """The data folder of a stack, whose lock its supervisor holds."""
    return next(
        (str(Path(one).parent) for one in _open_files(supervisor) if one.endswith("/lock")), "an unknown folder"
    )


def _open_files(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(entry.path))
    return found
