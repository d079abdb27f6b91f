"""Our end of a pipe to a child process, used without blocking the event loop.

The loop's own pipe transports are avoided: uvloop closes their descriptor twice, and by the second time its number may
belong to a file that another thread has just opened, such as the pipe of another tenant's command."""

import asyncio
import os
from collections.abc import Callable
from typing import Any


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
