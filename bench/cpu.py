"""CPU seconds of whole process trees and memory of a process, from /proc."""

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


def measurable() -> bool:
    return (PROC / "self" / "stat").exists()


def seconds(roots: Iterable[int]) -> float:
    """CPU seconds of these processes and all their descendants; an ended child stays counted in its parent."""
    return sum(tree(roots).values()) / _TICKS


def tree(roots: Iterable[int]) -> dict[int, int]:
    """These processes and all their descendants, with the clock ticks that each has used."""
    spent: dict[int, int] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in PROC.glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(entry.parent.name)
        children[int(fields[1])].append(pid)
        spent[pid] = sum(map(int, fields[11:15]))  # user, system, and both of ended children
    todo, found = list(roots), dict[int, int]()
    while todo:
        pid = todo.pop()
        found[pid] = spent.get(pid, 0)
        todo += children[pid]
    return found


def resident(pid: int) -> int:
    """Bytes of memory that this process holds."""
    return int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def lives(pid: int) -> bool:
    return (PROC / str(pid)).exists()


def listening(pid: int) -> list[int]:
    """The TCP ports of IPv4 on which this process listens."""
    sockets = {os.readlink(path) for path in (PROC / str(pid) / "fd").iterdir() if path.is_symlink()}
    ports = []
    for line in (PROC / str(pid) / "net" / "tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:  # 0A: LISTEN
            ports.append(int(fields[1].rpartition(":")[2], 16))
    return ports
