"""Runs one child process to its end: bounded output, a wall clock, and nothing left alive afterwards."""

import asyncio
import contextlib
import json
import os
import signal
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from activities.sandbox.sandbox import SandboxLimits

_GRACE_S = 5.0  # for the kernel to bury what was killed


@dataclass(frozen=True)
class ProcessExit:
    exit_code: int | None
    output: str
    timed_out: bool
    truncated: bool


async def supervise(
    argv: Sequence[str],
    *,
    timeout_s: float,
    limits: SandboxLimits,
    pass_fds: Sequence[int] = (),
    info_fd: int | None = None,
    stop_signal: signal.Signals = signal.SIGKILL,
) -> ProcessExit:
    """`info_fd`: where bwrap tells the pid of its namespace's init. Whatever happens here, cancellation included, that
    init and so every process of the namespace is dead on return. Closes all the descriptors it is given."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=pass_fds,
            env={"HOME": "/"},  # nothing of the worker's; Python wants a home where the user has no entry
            cwd="/",
            start_new_session=True,
        )
    except BaseException:
        if info_fd is not None:
            os.close(info_fd)
        raise
    finally:
        for fd in pass_fds:
            os.close(fd)
    tree = _Tree(process, asyncio.create_task(_init_of(info_fd)), stop_signal)
    output = _Output(limits)
    reading = asyncio.create_task(output.drain(process, tree))
    timed_out = False
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        timed_out = True
    finally:
        tree.kill()
        ending = asyncio.create_task(tree.ended(reading))
        await asyncio.shield(ending)
    code = None if timed_out or output.flooded else process.returncode
    return ProcessExit(code, output.text(), timed_out, output.dropped > 0)


def memory_file(content: bytes) -> int:
    """A descriptor for a child to read `content` from: arguments are bounded, and everybody on the host sees them."""
    fd = os.memfd_create("errand")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


async def _init_of(info_fd: int | None) -> int | None:
    """A handle on the namespace's init that cannot come to mean another process, or None."""
    if info_fd is None:
        return None
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(info_fd, "rb")
    )
    try:
        pid = json.loads(await reader.read())["child-pid"]
        return os.pidfd_open(pid)
    except (ValueError, KeyError, ProcessLookupError):
        return None  # it ended before it began, or is over already
    finally:
        transport.close()


class _Tree:
    """The child and all that descends from it."""

    def __init__(
        self, process: asyncio.subprocess.Process, init: asyncio.Task[int | None], stop_signal: signal.Signals
    ) -> None:
        self._process = process
        self._init = init
        self._signal = stop_signal

    def kill(self) -> None:
        if self._init.done() and (pidfd := self._init.result()) is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(self._signal)

    async def ended(self, reading: "asyncio.Task[None]") -> None:
        try:
            async with asyncio.timeout(_GRACE_S):
                pidfd = await self._init
                self.kill()
                await self._process.wait()
                if pidfd is not None:
                    await _readable(pidfd)
                await reading
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            reading.cancel()
        finally:
            if self._init.done() and not self._init.cancelled() and (pidfd := self._init.result()) is not None:
                os.close(pidfd)


async def _readable(pidfd: int) -> None:
    """A pid handle turns readable when its process has ended; an init's ends after all of its namespace."""
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

    async def drain(self, process: asyncio.subprocess.Process, tree: _Tree) -> None:
        assert process.stdout is not None
        while chunk := await process.stdout.read(65_536):
            self._seen += len(chunk)
            self._keep(chunk)
            if self._seen > self._flood and not self.flooded:
                self.flooded = True
                tree.kill()

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
