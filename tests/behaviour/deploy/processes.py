"""Reads processes from /proc, because a small machine may lack ps and ss."""

import socket
import struct
from pathlib import Path


def commands() -> str:
    """Return the command lines of all processes, as any account can read them."""
    return "\n".join(_text(path / "cmdline").replace("\0", " ") for path in Path("/proc").glob("[0-9]*"))


def session_of(leader: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        fields = _text(path / "stat").rpartition(")")[2].split()
        if fields and fields[3] == str(leader):
            found.append(int(path.name))
    return found


def listening(pid: int) -> list[tuple[str, int]]:
    """Return the addresses and ports on which this process listens."""
    sockets = {_link(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    found = []
    for table in ("tcp", "tcp6"):
        for line in _text(Path(f"/proc/{pid}/net/{table}")).splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                address, _, port = fields[1].partition(":")
                found.append((_address(address), int(port, 16)))
    return found


def _address(raw: str) -> str:
    """Parse an address of /proc/net: the kernel prints each 32-bit word in the machine's byte order."""
    numbers = [int(raw[at : at + 8], 16) for at in range(0, len(raw), 8)]
    packed = struct.pack(f"={len(numbers)}I", *numbers)
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # the process has ended
        return ""


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
