"""Who may use a workspace beside others: calls that change it share it, an approved command has it for itself.

A command is approved together with the files that it runs. Were another call to run beside it, that one could exchange
a file after it was compared. The lock is on the directory, so that it holds between workers of one host too.
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
        os.close(fd)  # which ends the lock


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
