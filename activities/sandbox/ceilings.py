"""Limits on what all processes of a command may use together, enforced by looking at them several times a second.

A cgroup would be exact, but few workers have one to delegate; this needs no privilege at all. Between two looks a
process is bounded by its own resource limits (address space, size of a file, number of processes).
"""

import asyncio
import contextlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from activities.sandbox.sandbox import SandboxLimits

_INTERVAL_S = 0.1
_IDLE_SHARE = 5  # the pause after a look is several times as long as the look
_DISK_IDLE_SHARE = 20
_DU_S = 60.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
# memory in the buffers of one socket, which is not counted for any process
_SOCKET_BYTES, _TCP_BYTES = 212_992, 2 * 1024**2
_SCRATCH = ("tmp", "dev/shm")
_REWRITES = 8  # times the allowed space that may be written: deleted files that are still open use space invisibly
# Its own threads: those of the event loop may all be busy with files while a command must be stopped.
_threads = ThreadPoolExecutor(2, thread_name_prefix="ceilings")


@dataclass
class TreeUsage:
    """The usage of a process and all its descendants."""

    pids: list[int]
    tasks: int = 0  # threads, as the kernel's own limit counts them
    resident: int = 0
    written: int = 0  # bytes written to storage, also by ended descendants
    passed: int = 0  # bytes passed to write calls, to any target


async def exceeded(root: int, limits: SandboxLimits, workspace: Path | None, *, init: bool) -> str:
    """Wait until the tree below `root` exceeds a limit, and return which one. `init`: `root` is the init of its own
    namespaces, whose sockets and scratch files all belong to the command."""
    loop = asyncio.get_running_loop()
    disk = _Disk(workspace, limits) if workspace is not None else None
    while True:
        began = time.monotonic()
        usage = await loop.run_in_executor(_threads, usage_below, root)
        if usage.tasks > limits.processes:
            return f"it ran more than {limits.processes} processes and threads at a time"
        if usage.resident > limits.memory_bytes:
            used = await loop.run_in_executor(_threads, _proportional, usage)
            if used > limits.memory_bytes:
                return f"its processes together used more than {mib(limits.memory_bytes)} of memory"
        if init and (reason := await loop.run_in_executor(_threads, _unowned, root, limits)):
            return reason
        if usage.written > _REWRITES * limits.disk_bytes:
            return f"it wrote more than {mib(_REWRITES * limits.disk_bytes)} to disk"
        if disk is not None and (reason := await disk.exceeded(usage)):
            return reason
        await asyncio.sleep(max(_INTERVAL_S, _IDLE_SHARE * (time.monotonic() - began)))


def mib(size: int) -> str:
    return f"{size / 1024**2:,.0f} MiB"


def usage_below(root: int) -> TreeUsage:
    usage = TreeUsage([])
    left = [root]
    while left:
        pid = left.pop()
        with contextlib.suppress(OSError, ValueError):  # it has ended, or is a zombie without memory
            threads = os.listdir(f"/proc/{pid}/task")
            usage.pids.append(pid)
            usage.tasks += len(threads)
            for thread in threads:
                left += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
            usage.resident += int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE
            counters = dict(line.split(": ") for line in _read(f"/proc/{pid}/io").splitlines())
            usage.written += int(counters["write_bytes"])
            usage.passed += int(counters["wchar"])
    return usage


def _proportional(usage: TreeUsage) -> int:
    """The memory of a process, with shared pages counted once: a fork does not double it."""
    total = 0
    for pid in usage.pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            try:
                rollup = _read(f"/proc/{pid}/smaps_rollup")
            except PermissionError:
                return usage.resident
            total += next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return total


def _unowned(root: int, limits: SandboxLimits) -> str:
    """Kernel memory that is not counted for any process: socket buffers, and files in memory, even empty ones."""
    with contextlib.suppress(OSError, ValueError):  # it has ended
        lines = dict(line.split(": ", 1) for line in _read(f"/proc/{root}/net/sockstat").splitlines())
        held = int(lines["sockets"].split()[1]) * _SOCKET_BYTES + int(lines["TCP"].split()[1]) * _TCP_BYTES
        if held > limits.memory_bytes:
            return f"its sockets together may hold more than {mib(limits.memory_bytes)} of memory"
        # Until bwrap has mounted everything the init still sees the host's /, or one without these folders.
        for place in () if os.path.samefile("/", f"/proc/{root}/root") else _SCRATCH:
            room = os.statvfs(os.path.join("/proc", str(root), "root", place))
            if room.f_files - room.f_ffree > limits.files:
                return f"it made more than {limits.files:,} files in /{place}"
    return ""


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


class _Disk:
    """Measure the workspace once the command has written a good deal since the last measurement."""

    def __init__(self, workspace: Path, limits: SandboxLimits) -> None:
        self._workspace = str(workspace.absolute())
        self._limits = limits
        self._free_files = os.statvfs(workspace).f_favail
        self._seen = 0
        self._next = 0.0

    async def exceeded(self, usage: TreeUsage) -> str:
        now = time.monotonic()
        written = usage.written + usage.passed
        made = self._free_files - os.statvfs(self._workspace).f_favail
        wrote_much = written - self._seen >= self._limits.disk_bytes // 64
        if now < self._next or not (wrote_much or made > self._limits.files):
            return ""
        used = await _du(self._workspace, "-skx") * 1024
        files = await _du(self._workspace, "-sx", "--inodes") if made > self._limits.files else 0
        self._seen = written
        self._next = time.monotonic() + _DISK_IDLE_SHARE * (time.monotonic() - now)
        if used > self._limits.disk_bytes:
            return f"its workspace grew beyond {mib(self._limits.disk_bytes)}"
        if files > self._limits.files:
            return f"its workspace grew beyond {self._limits.files:,} files"
        return ""


async def _du(workspace: str, *options: str) -> int:
    """Measure with a separate program: it follows no link, does not recurse however deep folders nest, and can be
    killed."""
    process = await asyncio.create_subprocess_exec(
        "du",
        *options,
        "--",
        workspace,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
    )
    try:
        async with asyncio.timeout(_DU_S):
            output, _ = await process.communicate()
    except TimeoutError:
        return sys.maxsize // 1024  # such a tree is never an accident
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return int(output.split()[0]) if output.split() else 0
