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
    """Of these processes and all that they started; a child that ended stays counted in its parent."""
    spent: dict[int, int] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in PROC.glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it ended while we looked
            continue
        pid = int(entry.parent.name)
        children[int(fields[1])].append(pid)
        spent[pid] = sum(map(int, fields[11:15]))  # user, system, and both of ended children
    todo, total = list(roots), 0
    while todo:
        pid = todo.pop()
        total += spent.get(pid, 0)
        todo += children[pid]
    return total / _TICKS


def resident(pid: int) -> int:
    """Bytes of memory that this process holds."""
    return int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def lives(pid: int) -> bool:
    return (PROC / str(pid)).exists()
