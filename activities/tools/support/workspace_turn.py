"""Turns in a workspace: calls that change it share it, and an approved command has it exclusively.

A command is approved together with the files that it runs. Another call beside it could replace a file after the
comparison. The lock is on the directory, so that it also holds between workers of one host.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator
from pathlib import Path

_PATIENCE_S = 120.0
_PAUSE_S = 0.05


class WorkspaceBusyError(Exception):
    """Other calls did not end in time."""


@contextlib.asynccontextmanager
async def workspace_turn(folder: Path, *, alone: bool) -> AsyncIterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        await _lock(fd, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)  # this releases the lock


async def _lock(fd: int, kind: int) -> None:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(fd, kind | fcntl.LOCK_NB)
                    return
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        raise WorkspaceBusyError from None
