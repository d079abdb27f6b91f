"""A worker's index of a local workspace: each entry as last saved or restored, with the stat that recognises it.

The index is stored beside the directory, where commands cannot reach it, and shared by all workers of this directory.
"""

import asyncio
import contextlib
import fcntl
import os
import stat
from collections import OrderedDict
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from store.workspaces import ManifestEntry

Stamp = tuple[int, int, int, int]  # inode, size, mtime and ctime; ctime cannot be set by a command
UNSETTLED: Stamp = (0, 0, 0, 0)  # differs from every file's stamp, so that the file is read again
SETTLED_NS = 50_000_000  # file system clocks are coarse: a younger file may still change without a new stamp
LOCK_POLL_SECONDS = 0.02
ENTRIES_IN_MEMORY = 200_000  # in all workspaces together


class KnownEntry(TypedDict):
    entry: ManifestEntry
    stamp: Stamp | None  # only for a file


class Index(TypedDict):
    """The entries of the local directory, and the version of the manifest they belong to."""

    version: int
    entries: dict[str, KnownEntry]
    skipped: dict[str, str]  # path -> why it is not saved; reported once


INDEX = TypeAdapter(Index)


def empty_index() -> Index:
    return {"version": -1, "entries": {}, "skipped": {}}


def stamp_of(info: os.stat_result, now_ns: int) -> Stamp:
    if now_ns - max(info.st_mtime_ns, info.st_ctime_ns) < SETTLED_NS:
        return UNSETTLED
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def mode_of(info: os.stat_result) -> int:
    return stat.S_IMODE(info.st_mode) & 0o777


class IndexFiles:
    """The indexes of all local workspaces; read from disk again only if another worker wrote them."""

    def __init__(self) -> None:
        self._cached: OrderedDict[Path, tuple[tuple[int, int], Index]] = OrderedDict()

    def known(self, home: Path) -> Index | None:
        """The index, if it is in memory and no other worker wrote it since."""
        file = home / "index.json"
        cached = self._cached.get(file)
        with contextlib.suppress(FileNotFoundError):
            return cached[1] if cached and cached[0] == _written(file) else None
        return None

    def load(self, home: Path) -> Index:
        if (known := self.known(home)) is not None:
            return known
        file = home / "index.json"
        try:
            written = _written(file)
            index = INDEX.validate_json(file.read_bytes())
        except (FileNotFoundError, ValueError):
            return empty_index()
        self._remember(file, written, index)
        return index

    def save(self, home: Path, index: Index) -> None:
        file = home / "index.json"
        temporary = file.with_suffix(".tmp")
        temporary.write_bytes(INDEX.dump_json(index))
        temporary.replace(file)
        self._remember(file, _written(file), index)

    def forget(self, home: Path) -> None:
        self._cached.pop(home / "index.json", None)

    def _remember(self, file: Path, written: tuple[int, int], index: Index) -> None:
        self._cached[file] = (written, index)
        self._cached.move_to_end(file)
        total = sum(len(cached["entries"]) for _, cached in self._cached.values())
        while total > ENTRIES_IN_MEMORY and len(self._cached) > 1:
            _, (_, oldest) = self._cached.popitem(last=False)
            total -= len(oldest["entries"])


def _written(file: Path) -> tuple[int, int]:
    info = file.stat()
    return info.st_ino, info.st_mtime_ns


@contextlib.asynccontextmanager
async def locked(home: Path) -> AsyncIterator[None]:
    """Lock a workspace against other workers of the same directory. The system drops the lock of one that dies."""
    while (fd := _try_lock(home)) is None:  # noqa: ASYNC110 - another process holds it, which no event shows
        await asyncio.sleep(LOCK_POLL_SECONDS)
    try:
        yield
    finally:
        os.close(fd)


def _try_lock(home: Path) -> int | None:
    """Try to lock; None if another worker holds the lock, or has just removed the whole workspace."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / "lock"
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_ino == file.stat().st_ino:
            return fd
    os.close(fd)
    return None
