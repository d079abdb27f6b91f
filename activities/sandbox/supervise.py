"""Runs one child process to its end, with limits for its process tree and a time limit, and leaves no process alive."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from activities.sandbox.ceilings import exceeded
from activities.sandbox.pipe_end import PipeEnd
from activities.sandbox.sandbox import Pipes, SandboxLimits

_GRACE_S = 5.0  # for the kernel to end killed processes


@dataclass(frozen=True)
class ProcessExit:
    exit_code: int | None
    output: str
    timed_out: bool
    truncated: bool
    stopped: str  # the limit that stopped it


@dataclass(frozen=True)
class Namespace:
    """The handshake between bwrap and the worker while a sandbox starts: bwrap writes the pid of the namespace's init
    to `info_fd`, `prepare` runs with it, then a byte in `release_fd` lets the command start."""

    info_fd: int
    release_fd: int
    prepare: Callable[[int], Awaitable[None]]


async def supervise(
    argv: Sequence[str],
    *,
    timeout_s: float,
    limits: SandboxLimits,
    workspace: Path | None = None,
    pass_fds: Sequence[int] = (),
    namespace: Namespace | None = None,
    stop_signal: signal.Signals = signal.SIGKILL,
    pipes: Pipes | None = None,
    uid: int | None = None,
) -> ProcessExit:
    """Run the child. In every case, including cancellation, the namespace's init and so all its processes are dead on
    return. Closes all descriptors that it was given, except those of `pipes`. `uid`: the user that the command runs
    as, if not the worker's own."""
    with _closing(namespace.release_fd if namespace is not None else None):
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
        watching = asyncio.create_task(_watch(tree, limits, workspace))
        timed_out = False
        try:
            async with asyncio.timeout(timeout_s):
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
    return ProcessExit(code, output.text(), timed_out, output.dropped > 0, stopped)


async def _watch(tree: "_Tree", limits: SandboxLimits, workspace: Path | None) -> str:
    """Stop the tree when it exceeds a limit; returns the reason."""
    if sys.platform != "linux":
        return ""  # without /proc only the limits of each process apply
    init = await tree.init()
    reason = await exceeded(init.pid if init is not None else tree.pid, limits, workspace, init=init is not None)
    tree.kill()
    return reason


def memory_file(content: bytes) -> int:
    """A descriptor from which a child reads `content`: arguments are short, and everybody on the host sees them."""
    fd = os.memfd_create("errand")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@contextlib.contextmanager
def _closing(fd: int | None) -> Iterator[None]:
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


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

    async def drain(self, pipe: PipeEnd, tree: _Tree) -> None:
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
