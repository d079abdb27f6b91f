"""Saving a workspace: find the changes in the directory, and read them in small batches, within limits.

This runs in a thread. An entry that exceeds a limit, or is not reached in time, keeps its former version; only entries
that no longer exist are removed.
"""

import errno
import hashlib
import os
import stat
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from activities.runtime.workspace_index import UNSETTLED, Index, KnownEntry, Stamp, mode_of, stamp_of
from activities.tools.support.paths import Workspace
from domain.policy.subjects import MAX_DEPTH, PathError
from store.workspaces import ManifestEntry, stored_bytes

BATCH_BYTES = 4_000_000  # contents held in memory at a time; a single file may be larger
BATCH_FILES = 500
BATCH_SECONDS = 0.5  # longest search without anything to store
MAX_EXTENTS = 256  # in a sparse file; one with more is read as a whole
MAX_REPORTED = 1_000  # entries that were not saved
MAX_TARGET = 4_000  # bytes of a link's target
Extent = tuple[int, int]  # offset and length of data


@dataclass(frozen=True)
class WorkspaceCaps:
    """How much of one workspace is saved."""

    file_bytes: int = 20_971_520  # per file; at most this much is in memory
    files: int = 20_000  # including folders and links
    workspace_bytes: int = 1_073_741_824  # 0: no limit
    seconds: float = 20.0  # the rest is saved after the next call


@dataclass(frozen=True)
class _Found:
    path: str
    info: os.stat_result
    target: str | None = None


@dataclass
class WorkspaceScan:
    """One scan of a directory. `batches` does the work; afterwards the other fields hold the result."""

    workspace: Workspace
    index: Index
    caps: WorkspaceCaps
    room: int | None  # bytes that the tenant may still store; None: no limit

    entries: dict[str, KnownEntry] = field(default_factory=dict)  # the new index
    changed: dict[str, ManifestEntry] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    # path -> why its present content is not saved; only the first ones
    skipped: dict[str, str] = field(default_factory=dict)

    def batches(self) -> Iterator[dict[str, bytes]]:
        """Contents to store, by digest. Each batch must be stored before the next one is requested."""
        self._until = time.monotonic() + self.caps.seconds
        found = {one.path: one for one in self._walk()}
        self._drop_missing(found)
        if not self.workspace.exists():  # the directory was lost, so keep what was saved of it
            self.entries, self.gone = dict(self.index["entries"]), []
            return
        self._count = len(self.entries)
        self._bytes = sum(stored_bytes(known["entry"]) for known in self.entries.values())
        batch: dict[str, bytes] = {}
        size, since = 0, time.monotonic()
        for one in found.values():
            content = self._look_at(one)
            if content is not None:
                batch[hashlib.sha256(content).hexdigest()] = content
                size += len(content)
            if size >= BATCH_BYTES or len(batch) >= BATCH_FILES or time.monotonic() - since > BATCH_SECONDS:
                yield batch
                batch, size, since = {}, 0, time.monotonic()
        yield batch

    def _walk(self) -> Iterator[_Found]:
        """All entries of the workspace, folders near the top first, so that deep entries are left out first."""
        left = 2 * self.caps.files
        waiting: deque[tuple[str, ...]] = deque([()])
        while waiting:
            names = waiting.popleft()
            if self._late() or left <= 0:
                self._skip("/".join(names) or ".", _too_many(self.caps) if left <= 0 else LATE)
                return
            try:
                found = self._folder(names, left)
            except (OSError, PathError):
                continue  # removed, replaced by a link, or not readable: its content is unknown
            left -= len(found)
            for one in found:
                if stat.S_ISDIR(one.info.st_mode):
                    if len(names) + 1 < MAX_DEPTH:
                        waiting.append((*names, one.path.rpartition("/")[2]))
                    else:
                        self._skip(one.path, f"it lies more than {MAX_DEPTH} folders deep")
                yield one

    def _folder(self, names: tuple[str, ...], most: int) -> list[_Found]:
        found: list[_Found] = []
        with self.workspace.folder(names) as folder, os.scandir(folder) as listed:
            for item in listed:
                if len(found) >= most:
                    self._skip("/".join(names) or ".", _too_many(self.caps))
                    break
                try:
                    path = "/".join((*names, item.name))
                    path.encode()
                    info = os.stat(item.name, dir_fd=folder, follow_symlinks=False)
                    target = os.readlink(item.name, dir_fd=folder) if stat.S_ISLNK(info.st_mode) else None
                    found.append(_Found(path, info, target))
                except UnicodeEncodeError:
                    self._skip("/".join(names) or ".", "a name in it is not UTF-8")
                except OSError:
                    continue  # removed or replaced by now
        return sorted(found, key=lambda one: one.path)

    def _drop_missing(self, found: dict[str, _Found]) -> None:
        for path, known in self.index["entries"].items():
            if path not in found and not self._late() and self.workspace.is_missing(path):
                self.gone.append(path)
            else:
                self.entries[path] = known

    def _look_at(self, one: _Found) -> bytes | None:
        """Add one entry to the result; returns its content if that has to be stored."""
        kind = stat.S_IFMT(one.info.st_mode)
        if kind == stat.S_IFDIR:
            self._take(one.path, {"kind": "folder", "mode": mode_of(one.info)}, None)
        elif kind == stat.S_IFLNK:
            assert one.target is not None
            if stays_inside(one.path, one.target):
                self._take(one.path, {"kind": "link", "target": one.target}, None)
            else:
                self._skip(one.path, "a link that leads out of the workspace")
        elif kind == stat.S_IFREG:
            return self._look_at_file(one)
        else:
            self._skip(one.path, "not a plain file")
        return None

    def _look_at_file(self, one: _Found) -> bytes | None:
        known = self.index["entries"].get(one.path)
        stamp = stamp_of(one.info, time.time_ns())
        if known is not None and known["stamp"] == stamp != UNSETTLED:
            return None  # unchanged, and already in `entries`
        if self._late():
            self._skip(one.path, LATE)
            return None
        # Holes cost nothing: only the bytes that the file occupies count.
        occupied = min(one.info.st_size, one.info.st_blocks * 512)
        before = stored_bytes(known["entry"]) if known else 0
        if not self._fits(one.path, known, occupied, before):
            return None
        try:
            content, entry, stamp = self._read(one.path)
        except (OSError, PathError):
            self._skip(one.path, "it could not be read")
            return None
        if not self._fits(one.path, known, len(content), before):
            return None
        if known is not None and known["entry"].get("sha256") == entry["sha256"]:
            self._take(one.path, entry, stamp)
            return None
        if self.room is not None:
            self.room -= len(content)
        self._take(one.path, entry, stamp)
        return content

    def _fits(self, path: str, known: KnownEntry | None, size: int, before: int) -> bool:
        caps = self.caps
        if size > caps.file_bytes:
            self._skip(path, f"it has more than {caps.file_bytes:,} bytes (ERRAND_WORKSPACE_FILE_BYTES)")
        elif known is None and self._count >= caps.files:
            self._skip(path, _too_many(caps))
        elif caps.workspace_bytes and self._bytes - before + size > caps.workspace_bytes:
            self._skip(path, f"the workspace has more than {caps.workspace_bytes:,} bytes (ERRAND_WORKSPACE_BYTES)")
        elif self.room is not None and size > self.room:
            self._skip(path, "the tenant's workspaces are full (ERRAND_TENANT_WORKSPACE_BYTES)")
        else:
            return True
        return False

    def _read(self, path: str) -> tuple[bytes, ManifestEntry, Stamp]:
        """The data of a file without its holes, at most one byte more than the limit."""
        now = time.time_ns()  # taken before the read, so that a change during the read gets another stamp
        with self.workspace.open(path) as fd:
            info = os.fstat(fd)
            extents = extents_of(fd, info.st_size)
            content = b"".join(_pieces(fd, extents, self.caps.file_bytes + 1))
        entry: ManifestEntry = {
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
            "mode": mode_of(info),
        }
        if extents != [(0, info.st_size)]:
            entry |= {"length": info.st_size, "extents": [list(extent) for extent in extents]}
        return content, entry, stamp_of(info, now)

    def _take(self, path: str, entry: ManifestEntry, stamp: Stamp | None) -> None:
        known = self.index["entries"].get(path)
        if known is None:
            if self._count >= self.caps.files:
                return self._skip(path, _too_many(self.caps))
            self._count += 1
        self._bytes += stored_bytes(entry) - (stored_bytes(known["entry"]) if known else 0)
        self.entries[path] = {"entry": entry, "stamp": stamp}
        if known is None or known["entry"] != entry:
            self.changed[path] = entry

    def _skip(self, path: str, why: str) -> None:
        if len(self.skipped) < MAX_REPORTED:
            self.skipped[path] = why

    def _late(self) -> bool:
        return time.monotonic() > self._until


LATE = "there was no time left; it is kept after the next call"


def _too_many(caps: WorkspaceCaps) -> str:
    return f"the workspace has more than {caps.files:,} files and folders (ERRAND_WORKSPACE_FILES)"


def stays_inside(path: str, target: str) -> bool:
    """Whether a link can only lead to something in the workspace: `..` only at the front, and never above the top.

    Anywhere else `..` could follow after another link, and then lead anywhere.
    """
    names = target.split("/")
    up = next((place for place, name in enumerate(names) if name != ".."), len(names))
    try:
        size = len(target.encode())
    except UnicodeEncodeError:
        return False
    return target[:1] not in ("", "/") and size <= MAX_TARGET and up <= path.count("/") and ".." not in names[up:]


def extents_of(fd: int, size: int) -> list[Extent]:
    """The ranges of a file that hold data; all of it if the file system does not know, or if there are too many."""
    found: list[Extent] = []
    offset = 0
    if size == 0:
        return [(0, 0)]
    try:
        while offset < size and len(found) <= MAX_EXTENTS:
            start = os.lseek(fd, offset, os.SEEK_DATA)
            offset = min(os.lseek(fd, start, os.SEEK_HOLE), size)
            found.append((start, offset - start))
    except OSError as error:
        if error.errno != errno.ENXIO:  # ENXIO: only a hole is left
            return [(0, size)]
    return found if len(found) <= MAX_EXTENTS else [(0, size)]


def _pieces(fd: int, extents: Sequence[Extent], most: int) -> Iterator[bytes]:
    for start, length in extents:
        offset = start
        while offset < start + length and most > 0:
            piece = os.pread(fd, min(1 << 20, start + length - offset, most), offset)
            if not piece:
                raise OSError("the file became shorter while it was read")
            offset, most = offset + len(piece), most - len(piece)
            yield piece
