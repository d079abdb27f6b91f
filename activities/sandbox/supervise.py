"""Runs one child process to its end, with limits for its process tree and a time limit, and leaves no process alive.

Read it in this order: `supervise`, the tree of its processes, the limits on what they use together, our end of its
pipes, who owns its workspace.
"""

import asyncio
import contextlib
import json
import os
import pwd
import signal
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from activities.sandbox.sandbox import CommandOptions, SandboxLimits, SandboxResult

_GRACE_S = 5.0  # for the kernel to end killed processes
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


@dataclass(frozen=True)
class Namespace:
    """The handshake between bwrap and the worker while a sandbox starts: bwrap writes the pid of the namespace's init
    to `info_fd`, `prepare` runs with it, then a byte in `release_fd` lets the command start."""

    info_fd: int
    release_fd: int
    prepare: Callable[[int], Awaitable[None]]


async def supervise(
    argv: Sequence[str],
    options: CommandOptions,
    backend: str,
    *,
    pass_fds: Sequence[int] = (),
    namespace: Namespace | None = None,
    stop_signal: signal.Signals = signal.SIGKILL,
    uid: int | None = None,
) -> SandboxResult:
    """Run the child. In every case, including cancellation, the namespace's init and so all its processes are dead on
    return. Closes all descriptors that it was given, except those of the pipes. `uid`: the user that the command runs
    as, if not the worker's own."""
    limits, pipes = options["limits"], options.get("pipes")
    with contextlib.ExitStack() as closing:
        if namespace is not None:
            closing.callback(os.close, namespace.release_fd)
        # Not the loop's own pipe, which is a socket with uvloop: programs could not open /dev/stderr.
        ours, theirs = os.pipe()
        if uid is not None:
            os.fchown(theirs, uid, uid)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=pipes.stdin if pipes is not None else asyncio.subprocess.DEVNULL,
                stdout=pipes.stdout if pipes is not None else theirs,
                stderr=theirs,
                pass_fds=pass_fds,
                env={"HOME": "/"},  # none of the worker's; Python needs a home if the user has no passwd entry
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            if namespace is not None:
                os.close(namespace.info_fd)
            raise
        finally:
            for fd in (theirs, *pass_fds):
                os.close(fd)
        tree = _Tree(process, asyncio.create_task(_init_of(namespace)), stop_signal)
        output = _Output(limits)
        reading = asyncio.create_task(output.drain(PipeEnd(ours), tree))
        watching = asyncio.create_task(_watch(tree, limits, options["workspace"]))
        timed_out = False
        try:
            async with asyncio.timeout(options["timeout_s"]):
                if namespace is not None and (init := await tree.init()) is not None:
                    await namespace.prepare(init.pid)
                    os.write(namespace.release_fd, b".")
                await process.wait()
        except TimeoutError:
            timed_out = True
        finally:
            tree.kill()
            watching.cancel()
            ending = asyncio.create_task(tree.ended(reading))
            await asyncio.shield(ending)
    stopped = "it wrote too much output" if output.flooded else ""
    if watching.done() and not watching.cancelled():
        stopped = watching.result() or stopped
    code = None if timed_out or stopped else process.returncode
    return SandboxResult(code, output.text(), backend, timed_out, output.dropped > 0, stopped)


async def _watch(tree: "_Tree", limits: SandboxLimits, workspace: Path) -> str:
    """Stop the tree when it exceeds a limit; returns the reason."""
    if sys.platform != "linux":
        return ""  # without /proc only the limits of each process apply
    init = await tree.init()
    reason = await find_excess(init.pid if init is not None else tree.pid, limits, workspace, init=init is not None)
    tree.kill()
    return reason


def memory_file(content: bytes) -> int:
    """A descriptor from which a child reads `content`: arguments are short, and everybody on the host sees them."""
    fd = os.memfd_create("errand")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


# the processes


@dataclass(frozen=True)
class _Init:
    """The init of a namespace, with a handle that stays valid even if its pid is reused."""

    pid: int
    handle: int


async def _init_of(namespace: Namespace | None) -> _Init | None:
    if namespace is None:
        return None
    pipe, written = PipeEnd(namespace.info_fd), b""
    try:
        while piece := await pipe.read():
            written += piece
        pid = json.loads(written)["child-pid"]
        return _Init(pid, os.pidfd_open(pid))
    except (ValueError, KeyError, ProcessLookupError):
        return None  # it failed to start, or has already ended
    finally:
        pipe.close()


class _Tree:
    """The child and all its descendants."""

    def __init__(
        self, process: asyncio.subprocess.Process, init: asyncio.Task[_Init | None], stop_signal: signal.Signals
    ) -> None:
        self._process = process
        self._init = init
        self._signal = stop_signal
        self.pid = process.pid

    async def init(self) -> _Init | None:
        """The init; None if there is no namespace, or if its start failed."""
        return await asyncio.shield(self._init)

    def kill(self) -> None:
        if self._init.done() and (init := self._init.result()) is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(init.handle, signal.SIGKILL)
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(self._signal)

    async def ended(self, reading: "asyncio.Task[None]") -> None:
        try:
            async with asyncio.timeout(_GRACE_S):
                init = await self._init
                self.kill()
                await self._process.wait()
                if init is not None:
                    await _readable(init.handle)
                await reading
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            reading.cancel()
        finally:
            if self._init.done() and not self._init.cancelled() and (init := self._init.result()) is not None:
                os.close(init.handle)


async def _readable(pidfd: int) -> None:
    """Wait for a pid handle, which becomes readable when its process ends; an init ends last in its namespace."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)


class _Output:
    """Keeps the first and the last part of a stream of any length."""

    def __init__(self, limits: SandboxLimits) -> None:
        self._half = limits.output_bytes // 2
        self._flood = limits.flood_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._seen = 0
        self.dropped = 0
        self.flooded = False

    async def drain(self, pipe: "PipeEnd", tree: _Tree) -> None:
        try:
            while chunk := await pipe.read():
                self._seen += len(chunk)
                self._keep(chunk)
                if self._seen > self._flood and not self.flooded:
                    self.flooded = True
                    tree.kill()
        finally:
            pipe.close()

    def _keep(self, chunk: bytes) -> None:
        room = max(0, self._half - len(self._head))
        self._head += chunk[:room]
        rest = chunk[room:]
        if not rest:
            return
        self._tail.append(rest)
        self._tail_size += len(rest)
        while self._tail_size - len(self._tail[0]) >= self._half:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self.dropped += gone

    def text(self) -> str:
        tail = b"".join(self._tail)
        if extra := max(0, len(tail) - self._half):
            self.dropped += extra
            tail = tail[extra:]
        mark = f"\n… {self.dropped} bytes of output left out …\n".encode() if self.dropped else b""
        return (bytes(self._head) + mark + tail).decode(errors="replace")


# Limits on what all processes of a command may use together, enforced by looking at them several times a second. A
# cgroup would be exact, but few workers have one to delegate; this needs no privilege at all. Between two looks a
# process is bounded by its own resource limits (address space, size of a file, number of processes).


@dataclass
class TreeUsage:
    """The usage of a process and all its descendants."""

    pids: list[int]
    tasks: int = 0  # threads, as the kernel's own limit counts them
    resident: int = 0
    written: int = 0  # bytes written to storage, also by ended descendants
    passed: int = 0  # bytes passed to write calls, to any target


async def find_excess(root: int, limits: SandboxLimits, workspace: Path, *, init: bool) -> str:
    """Wait until the tree below `root` exceeds a limit, and return which one. `init`: `root` is the init of its own
    namespaces, whose sockets and scratch files all belong to the command."""
    loop = asyncio.get_running_loop()
    disk = _Disk(workspace, limits)
    while True:
        began = time.monotonic()
        usage = await loop.run_in_executor(_threads, usage_below, root)
        if usage.tasks > limits.processes:
            return f"it ran more than {limits.processes} processes and threads at a time"
        if usage.resident > limits.memory_bytes:
            used = await loop.run_in_executor(_threads, _proportional, usage)
            if used > limits.memory_bytes:
                return f"its processes together used more than {mib(limits.memory_bytes)} of memory"
        if init and (reason := await loop.run_in_executor(_threads, _find_unowned, root, limits)):
            return reason
        if usage.written > _REWRITES * limits.disk_bytes:
            return f"it wrote more than {mib(_REWRITES * limits.disk_bytes)} to disk"
        if reason := await disk.find_exceeded(usage):
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


def _find_unowned(root: int, limits: SandboxLimits) -> str:
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

    async def find_exceeded(self, usage: TreeUsage) -> str:
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


# Our end of a pipe to a child process, used without blocking the event loop. The loop's own pipe transports are
# avoided: uvloop closes their descriptor twice, and by the second time its number may belong to a file that another
# thread has just opened, such as the pipe of another tenant's command.


class PipeEnd:
    """Owns the descriptor. Close it in the task that uses it, so that nobody waits for it then."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd

    async def read(self, size: int = 65_536) -> bytes:
        """What is there, or b"" once all writers have closed it. Waits even if there is something: a child that writes
        without a pause must not keep the event loop."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wait(loop.add_reader, loop.remove_reader)
            try:
                return os.read(self._fd, size)
            except BlockingIOError:
                continue

    async def write(self, data: bytes) -> None:
        """Write all of it, as fast as the child reads. Raises BrokenPipeError if it reads no more."""
        loop = asyncio.get_running_loop()
        left = memoryview(data)
        while left:
            await self._wait(loop.add_writer, loop.remove_writer)
            try:
                left = left[os.write(self._fd, left) :]
            except BlockingIOError:
                continue

    def close(self) -> None:
        os.close(self._fd)

    async def _wait(self, add: Callable[..., Any], remove: Callable[[int], Any]) -> None:
        ready = asyncio.Event()
        add(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            remove(self._fd)


# Ownership of the workspace: a worker that is root gives it to the sandbox's user. Its own file tools still reach it.


async def user_for(workspace: Path) -> int | None:
    """The user id that a command runs as and that gets the workspace; None if the worker is not root and runs it
    itself."""
    if os.geteuid() != 0:
        return None
    uid = unused_uid()
    await asyncio.to_thread(adopt_files, workspace, uid)
    return uid


def unused_uid() -> int:
    """The user for the commands of a root worker. The kernel does not limit root's processes, so an unused user is
    needed."""
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    return next(uid for uid in range(64_990, 60_000, -1) if uid not in taken)


def adopt_files(workspace: Path, uid: int) -> None:
    """Give root's files and directories below `workspace` to `uid`. It walks by directory descriptors and never follows
    a link. A file with several names may also belong elsewhere (a local git clone shares its objects) and is left
    alone."""
    for _, folders, files, here in os.fwalk(workspace, follow_symlinks=False):
        if os.fstat(here).st_uid != uid:
            os.fchown(here, uid, uid)
        for name in (*folders, *files):
            try:
                found = os.stat(name, dir_fd=here, follow_symlinks=False)
                if found.st_uid == 0 and (found.st_nlink == 1 or name in folders):
                    os.chown(name, uid, uid, dir_fd=here, follow_symlinks=False)
            except FileNotFoundError:
                continue  # a command that still runs in this workspace removed it
