"""Folders for programs whose tool list is read. What a program leaves in one is removed by another program: that
follows no link, does not recurse however deep folders nest, and does not stall the worker."""

import asyncio
import contextlib
import fcntl
import logging
import os
import stat
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

PREFIX = "errand-mcp-"
NEW_PREFIX = "errand-new-mcp-"  # not yet locked
REMOVE_SECONDS = 5.0  # a removal that takes longer continues without its caller

log = logging.getLogger("errand.worker")
_removals: set["asyncio.Task[None]"] = set()  # the event loop itself does not keep them


@contextlib.asynccontextmanager
async def scratch_folder() -> AsyncIterator[Path]:
    """An empty folder. It is locked while it is used, so that no other worker takes it for a leftover."""
    new = tempfile.mkdtemp(prefix=NEW_PREFIX)
    folder = new.replace(NEW_PREFIX, PREFIX)
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(new, folder)
        yield Path(folder)
    finally:
        await _remove([folder], [lock])


async def remove_leftovers() -> None:
    """Remove the folders of workers that were killed."""
    if found := await asyncio.to_thread(_leftovers):
        log.warning("removing %d folders of MCP programs whose worker was killed", len(found))
        await _remove(list(found), list(found.values()))


def _leftovers() -> dict[str, int]:
    """Unused folders, each with a lock on it."""
    locks = {str(folder): _unused(folder) for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*")}
    return {folder: lock for folder, lock in locks.items() if lock is not None}


def _unused(folder: Path) -> int | None:
    """A lock on the folder; None if it is in use, or not a folder of ours."""
    with contextlib.suppress(OSError):
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            return None
        if found.st_uid == os.geteuid() != 0:  # its program may have closed it; root can open it anyway
            folder.chmod(0o700)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            os.close(lock)
    return None


async def _remove(folders: list[str], locks: list[int]) -> None:
    task = asyncio.create_task(_removed(folders, locks))
    _removals.add(task)
    task.add_done_callback(_removals.discard)
    await asyncio.wait({task}, timeout=REMOVE_SECONDS)


async def _removed(folders: list[str], locks: list[int]) -> None:
    try:
        full = [folder for folder in folders if not _rmdir(folder)]
        if full:
            await _run("chmod", "-R", "u+rwx", "--", *full)  # else only root can empty closed folders
            await _run("rm", "-rf", "--", *full)
        if left := [folder for folder in full if not _rmdir(folder)]:
            log.error("could not be removed: %s", ", ".join(left))
    except OSError as error:
        log.error("could not be removed (%s): %s", error, ", ".join(folders))
    finally:
        for lock in locks:
            os.close(lock)


def _rmdir(folder: str) -> bool:
    """Remove an empty folder; returns whether there is none any more. Usually a program leaves nothing."""
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    return not os.path.lexists(folder)


async def _run(*argv: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
    )
    await process.wait()
