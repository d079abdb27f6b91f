"""Workspaces: the directory in which a thread's tools work. A call finds it restored (`ready`), and what it changed is
saved to the file store (`keep`), so that any worker can restore it.

Read it in this order: what a worker knows of a directory, `Workspaces` with what calls use, then what runs in its
threads: save, restore, the index on disk and its lock.
"""

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import logging
import operator
import os
import shutil
import stat
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NotRequired, TypeVar
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from activities.tools.support.paths import Workspace
from activities.tools.tool import ToolResult, clean
from domain.environments import Tree
from domain.events import WorkspaceNotKept
from domain.ids import new_id
from domain.policy.rules import MAX_DEPTH, PathError
from domain.sessions.session import preview
from store import files, workspaces
from store.database import Pool
from store.workspaces import Fence, Manifest, ManifestEntry, count_stored_bytes, pieces_of, without_conflicts

log = logging.getLogger("errand.worker")
Stamp = tuple[int, int, int, int]  # inode, size, mtime and ctime; ctime cannot be set by a command
Extent = tuple[int, int]  # offset and length of data
T = TypeVar("T")
AT_ONCE = 4  # batches of contents in memory, and threads that handle them
NAMED = 10  # files that are named; the rest is counted
BATCH_BYTES = 4_000_000  # contents held in memory at a time; a single file may be larger
BATCH_FILES = 500
BATCH_SECONDS = 0.5  # longest search without anything to store
MAX_EXTENTS = 256  # in a sparse file; one with more is read as a whole
MAX_REPORTED = 1_000  # entries that were not saved
MAX_TARGET = 4_000  # bytes of a link's target
UNSETTLED: Stamp = (0, 0, 0, 0)  # differs from every file's stamp, so that the file is read again
SETTLED_NS = 50_000_000  # file system clocks are coarse: a younger file may still change without a new stamp
LOCK_POLL_SECONDS = 0.02
ENTRIES_IN_MEMORY = 200_000  # in all workspaces together
LATE = "there was no time left; it is kept after the next call"
BuildTree = Callable[[str, str, Tree, Path], Awaitable[None]]  # for a tenant's workspace, in an empty folder
GONE: ManifestEntry = {"kind": "gone"}
IN_TREE: ManifestEntry = {"kind": "tree"}  # a file as the tree has it


@dataclass(frozen=True)
class WorkspaceCaps:
    """How much of one workspace is saved."""

    file_bytes: int = 20_971_520  # per file; at most this much is in memory
    files: int = 20_000  # including folders and links
    workspace_bytes: int = 1_073_741_824  # 0: no limit
    seconds: float = 20.0  # the rest is saved after the next call


class KnownEntry(TypedDict):
    entry: ManifestEntry
    stamp: Stamp | None  # only for a file
    tree: NotRequired[bool]  # the tree under the manifest has it too; the manifest lists it only if it was changed


class Index(TypedDict):
    """The entries of the local directory, and the version of the manifest they belong to."""

    version: int
    entries: dict[str, KnownEntry]
    skipped: dict[str, str]  # path -> why it is not saved; reported once


INDEX = TypeAdapter(Index)


@dataclass(frozen=True)
class KeepReport:
    """Files that could not be saved and were not reported before: path -> reason."""

    skipped: dict[str, str] = field(default_factory=dict)

    def add_to(self, result: ToolResult) -> ToolResult:
        if not self.skipped:
            return result
        named = {preview(clean(path), 200): why for path, why in list(self.skipped.items())[:NAMED]}
        lines = [f"- {path}: {why}" for path, why in named.items()]
        if len(self.skipped) > NAMED:
            lines.append(f"- and {len(self.skipped) - NAMED:,} more")
        text = (
            "[Not kept. The workspace has this now, but when the session continues on another worker, it will be "
            "missing, or as it was before:\n" + "\n".join(lines) + "]"
        )
        event = WorkspaceNotKept(count=len(self.skipped), files=named)
        return replace(result, text=f"{result.text}\n{text}", events=[*result.events, event])


class Workspaces:
    def __init__(
        self,
        pool: Pool,
        root: Path,
        caps: WorkspaceCaps | None = None,
        tenant_bytes: int = 0,
        build_tree: BuildTree | None = None,
    ) -> None:
        self._pool = pool
        self._build_tree = build_tree
        self._root = root
        self.caps = caps or WorkspaceCaps()
        self._tenant_bytes = tenant_bytes  # 0: no limit
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._indexes = IndexFiles()
        self._making: set[asyncio.Task[Path]] = set()  # a reference, because the event loop keeps only a weak one
        # its own threads, so that slow disks do not delay other work
        self._threads = ThreadPoolExecutor(AT_ONCE, "workspaces")
        self._batches = asyncio.Semaphore(AT_ONCE)

    def folder(self, tenant: str, workspace_id: str) -> Path:
        """Where the files of a workspace are on this worker, once `ready` has put them there."""
        return self._home(tenant, workspace_id) / "files"

    async def ready(self, tenant: str, workspace_id: str, version: int) -> Path:
        """The directory, updated to `version` of its manifest. Files that only this worker has are left alone."""
        if self.folder(tenant, workspace_id).exists():
            return await self._update(tenant, workspace_id, version)
        # A large tree takes longer than a short call may: the call's retry finds what is finished meanwhile.
        making = asyncio.ensure_future(self._update(tenant, workspace_id, version))
        self._making.add(making)
        making.add_done_callback(self._making.discard)
        return await asyncio.shield(making)

    async def _update(self, tenant: str, workspace_id: str, version: int) -> Path:
        home = self._home(tenant, workspace_id)
        folder = self.folder(tenant, workspace_id)
        async with self._lock(tenant, workspace_id), lock_workspace(home):
            exists = folder.exists()
            index = await self._index(home) if exists else empty_index()
            if index["version"] < version or not exists:
                newest, manifest, tree = await workspaces.get_all(self._pool, tenant, workspace_id)
                if tree is not None and index["version"] < 0:  # a checkout that was interrupted has no index
                    index = await self._check_out(tenant, workspace_id, tree, home)
                folder.mkdir(exist_ok=True)
                await self._restore(tenant, home, index, newest, manifest)
        return folder

    async def keep(self, tenant: str, workspace_id: str, fence: Fence | None = None) -> KeepReport:
        """Save the changes since the last time to the file store and the manifest, unless the fence refuses it. Safe to
        repeat."""
        home = self._home(tenant, workspace_id)
        async with self._lock(tenant, workspace_id), lock_workspace(home):
            index = await self._index(home)
            scan = WorkspaceScan(Workspace(home / "files"), index, self.caps, await self._room(tenant))
            await self._store(tenant, scan)
            version = index["version"]
            if scan.changed or scan.gone:
                version = await self._write_manifest(tenant, workspace_id, version, scan, fence)
            new: Index = {"version": version, "entries": scan.entries, "skipped": scan.skipped}
            if new != index:
                await self._in_thread(lambda: self._indexes.save(home, new))
        return KeepReport({path: why for path, why in scan.skipped.items() if index["skipped"].get(path) != why})

    @contextlib.contextmanager
    def use(self, tenant: str, workspace_id: str) -> Iterator[None]:
        """Until the files of a call are saved, or a check or the changes are read, nobody abandons the directory."""
        with self._lock_use(tenant, workspace_id, fcntl.LOCK_SH):  # at once, or after a rename
            yield

    async def abandon(self, tenant: str, workspace_id: str) -> None:
        """Leave a directory in which a call has written that was closed meanwhile: the next call gets one as it was
        saved last, and nobody keeps what came too late. Not while others work in it, whose files would be lost."""
        home = self._home(tenant, workspace_id)
        async with self._lock(tenant, workspace_id), lock_workspace(home):
            alone = self._lock_use(tenant, workspace_id, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(BlockingIOError, FileNotFoundError), alone:
                (home / "files").rename(home / f"abandoned-{new_id()}")
                (home / "index.json").unlink(missing_ok=True)
            for left in home.glob("abandoned-*"):
                await self._in_thread(partial(shutil.rmtree, left, ignore_errors=True))

    @contextlib.contextmanager
    def _lock_use(self, tenant: str, workspace_id: str, kind: int) -> Iterator[None]:
        home = self._home(tenant, workspace_id)
        home.mkdir(parents=True, exist_ok=True)
        fd = os.open(home / "use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, kind)
            yield
        finally:
            os.close(fd)

    async def adopt(self, tenant: str, workspace_id: str, tree: Tree, manifest: Manifest) -> None:
        """Take over the files that another workspace had besides its tree; those of this one's tree stay."""
        git = tuple(f"{one.prefix}.git/" for one in tree.checkouts)
        home = self._home(tenant, workspace_id)
        async with self._lock(tenant, workspace_id), lock_workspace(home):
            known = (await self._index(home))["entries"]
        own = {path for path, entry in known.items() if entry.get("tree")}
        taken = {
            path: entry
            for path, entry in manifest.items()
            if path not in own and entry != GONE and not path.startswith(git)
        }
        change = partial(operator.or_, taken)  # what the workspace has itself stays
        version, _ = await workspaces.update(self._pool, tenant, workspace_id, change)
        await self.ready(tenant, workspace_id, version)

    async def _check_out(self, tenant: str, workspace_id: str, tree: Tree, home: Path) -> Index:
        """Put the tree where the workspace will be, whole or not at all."""
        assert self._build_tree is not None
        building, folder = home / "building", home / "files"
        await self._in_thread(lambda: shutil.rmtree(building, ignore_errors=True))
        building.mkdir()
        try:
            await self._build_tree(tenant, workspace_id, tree, building)
        except BaseException:
            await self._in_thread(lambda: shutil.rmtree(building, ignore_errors=True))  # it may be large
            raise
        await self._in_thread(lambda: shutil.rmtree(folder, ignore_errors=True))
        building.rename(folder)
        await asyncio.sleep(2 * SETTLED_NS / 1e9)  # so that the stamps hold
        return await self._in_thread(lambda: {**empty_index(), "entries": list_tree(folder)})

    async def forget(self) -> None:
        """Delete the directories of workspaces that no longer exist in the store."""
        here = {
            (unquote(path.parent.name), path.name): path
            for path in await asyncio.to_thread(list, self._root.glob("*/*"))
        }
        for key in await workspaces.find_removed(self._pool, list(here)):
            async with self._lock(*key), lock_workspace(here[key]):
                self._indexes.forget(here[key])
                await asyncio.to_thread(shutil.rmtree, here[key], ignore_errors=True)

    async def _store(self, tenant: str, scan: "WorkspaceScan") -> None:
        """Store the contents that a scan finds, one batch after the other."""
        batches = scan.batches()
        while True:
            async with self._batches:
                batch = await self._in_thread(lambda: next(batches, None))
                if batch is None:
                    return
                await files.put_digested(self._pool, tenant, batch)

    async def _write_manifest(
        self, tenant: str, workspace_id: str, before: int, scan: "WorkspaceScan", fence: Fence | None
    ) -> int:
        """Write the manifest; returns the version of the directory. Another worker's changes are fetched before the
        next call."""

        def merge(manifest: Manifest) -> Manifest:
            gone = set(scan.gone)
            kept = {path: entry for path, entry in manifest.items() if path not in gone}
            removed = {path: GONE for path in gone if path in scan.entries}
            return without_conflicts(kept | removed | scan.changed)

        version, _ = await workspaces.update(self._pool, tenant, workspace_id, merge, fence)
        return version if version == before + 1 or before < 0 else before

    async def _restore(self, tenant: str, home: Path, index: Index, version: int, manifest: Manifest) -> None:
        restore = WorkspaceRestore(Workspace(home / "files"), index, manifest)
        await self._in_thread(restore.clear)
        for batch in restore.batches():
            async with self._batches:
                digests = list({manifest[path]["sha256"] for path in batch})
                contents = await files.get_blobs(self._pool, tenant, digests)
                await self._in_thread(partial(restore.write, batch, contents))
        await self._in_thread(restore.finish)
        new: Index = {"version": version, "entries": restore.entries, "skipped": index["skipped"]}
        await self._in_thread(lambda: self._indexes.save(home, new))

    async def _index(self, home: Path) -> Index:
        # usually one stat, like the lock's own: cheaper than a thread
        known = self._indexes.find_cached(home)
        return known if known is not None else await self._in_thread(lambda: self._indexes.load(home))

    async def _room(self, tenant: str) -> int | None:
        """Bytes that the tenant may still store."""
        if not self._tenant_bytes:
            return None
        return max(0, self._tenant_bytes - await workspaces.bytes_of_tenant(self._pool, tenant))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])  # a thread cannot be stopped, and the lock must be held until it ends
            raise

    def _home(self, tenant: str, workspace_id: str) -> Path:
        return self._root / quote(tenant, safe="") / workspace_id

    def _lock(self, tenant: str, workspace_id: str) -> asyncio.Lock:
        return self._locks.setdefault((tenant, workspace_id), asyncio.Lock())


# save: find the changes in the directory, and read them in small batches, within limits. This runs in a thread. An
# entry that exceeds a limit, or is not reached in time, keeps its former version; only entries that no longer exist
# are removed.


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
        self._count = sum(not known.get("tree") for known in self.entries.values())
        self._bytes = sum(count_stored_bytes(known["entry"]) for known in self.entries.values())
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
        left = 2 * self.caps.files + sum(known.get("tree", False) for known in self.index["entries"].values())
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
            missing = path not in found and known["entry"] != GONE
            if missing and not self._late() and self.workspace.is_missing(path):
                self.gone.append(path)
                if known.get("tree"):  # remembered, because the tree would bring it back
                    self.entries[path] = replace_entry(known, GONE, None)
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
        before = count_stored_bytes(known["entry"]) if known else 0
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
        self._bytes += count_stored_bytes(entry) - (count_stored_bytes(known["entry"]) if known else 0)
        self.entries[path] = replace_entry(known, entry, stamp)
        if known is None or known["entry"] != entry:
            self.changed[path] = entry

    def _skip(self, path: str, why: str) -> None:
        if len(self.skipped) < MAX_REPORTED:
            self.skipped[path] = why

    def _late(self) -> bool:
        return time.monotonic() > self._until


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


# restore: change the directory from what the index records to what the manifest says. This runs in a thread. Files that
# only this worker has are left alone. An entry that a running command keeps from being restored is left out of the
# index, so that it is tried again with the next version.


@dataclass
class WorkspaceRestore:
    workspace: Workspace
    index: Index
    manifest: Manifest

    entries: dict[str, KnownEntry] = field(default_factory=dict)  # the new index

    def clear(self) -> None:
        """Remove entries that the manifest no longer has, deepest first, and create its folders."""
        self.entries.update(self.index["entries"])
        gone = {path for path, known in self.entries.items() if self.manifest.get(path) == GONE != known["entry"]}
        unlisted = {path for path in self.entries.keys() - self.manifest.keys() if not self.entries[path].get("tree")}
        for path in sorted(gone | unlisted, reverse=True):
            with _log_errors(path):
                # a folder with files that only this worker has is kept
                self.workspace.remove(path)
            known = self.entries.pop(path)
            if path in gone:
                self.entries[path] = replace_entry(known, GONE, None)
        for path in sorted(self._select("folder")):
            with _log_errors(path):
                self.workspace.make_folder(path)

    def batches(self) -> Iterator[list[str]]:
        """The files to write, a limited number of bytes at a time."""
        batch: list[str] = []
        size = 0
        for path, entry in self._select(None).items():
            if batch and (size + count_stored_bytes(entry) > BATCH_BYTES or len(batch) >= BATCH_FILES):
                yield batch
                batch, size = [], 0
            batch.append(path)
            size += count_stored_bytes(entry)
        if batch:
            yield batch

    def write(self, paths: list[str], contents: dict[str, bytes]) -> None:
        for path in paths:
            entry = self.manifest[path]
            content = contents.get(entry["sha256"])
            if content is None:
                log.error("the content of a workspace's file is missing in the store (%s)", entry["sha256"])
                continue
            with _log_errors(path):
                self._out_of_the_way(path)
                length = entry.get("length", len(content))
                info = self.workspace.put(path, pieces_of(entry, content), length, entry["mode"] & 0o777)
                self._take(path, stamp_of(info, time.time_ns()))

    def finish(self) -> None:
        """Create the links, then set the modes of folders, because a read-only folder could not have been filled."""
        for path, entry in self._select("link").items():
            if stays_inside(path, entry["target"]):
                with _log_errors(path):
                    self._out_of_the_way(path)
                    self.workspace.link(path, entry["target"])
                    self._take(path)
        for path in sorted(self._select("folder"), reverse=True):
            with _log_errors(path):
                self.workspace.set_folder_mode(path, self.manifest[path]["mode"] & 0o777)
                self._take(path)

    def _take(self, path: str, stamp: Stamp | None = None) -> None:
        self.entries[path] = replace_entry(self.entries.get(path), self.manifest[path], stamp)

    def _select(self, kind: str | None) -> Manifest:
        return {
            path: entry
            for path, entry in self.manifest.items()
            if entry.get("kind") == kind and (path not in self.entries or self.entries[path]["entry"] != entry)
        }

    def _out_of_the_way(self, path: str) -> None:
        """Make room for a rename, which replaces a file or a link but not an empty folder."""
        known = self.entries.get(path)
        if known is not None and known["entry"].get("kind") == "folder":
            self.workspace.remove(path)


@contextlib.contextmanager
def _log_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (PathError, OSError) as error:
        log.warning("a name in a workspace cannot be restored (%s)", type(error).__name__)


# the index: each entry as last saved or restored, with the stat that recognises it. It is stored beside the directory,
# where commands cannot reach it, and shared by all workers of this directory.


def empty_index() -> Index:
    return {"version": -1, "entries": {}, "skipped": {}}


def stamp_of(info: os.stat_result, now_ns: int) -> Stamp:
    if now_ns - max(info.st_mtime_ns, info.st_ctime_ns) < SETTLED_NS:
        return UNSETTLED
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def replace_entry(known: KnownEntry | None, entry: ManifestEntry, stamp: Stamp | None) -> KnownEntry:
    return {**known, "entry": entry, "stamp": stamp} if known is not None else {"entry": entry, "stamp": stamp}


def list_tree(root: Path) -> dict[str, KnownEntry]:
    """The entries of a fresh checkout, in which nothing runs yet."""
    found: dict[str, KnownEntry] = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            place = Path(folder, name)
            path, info = place.relative_to(root).as_posix(), place.lstat()
            known: KnownEntry = {"entry": IN_TREE, "stamp": None, "tree": True}
            if stat.S_ISLNK(info.st_mode):
                known["entry"] = {"kind": "link", "target": os.readlink(place)}
            elif stat.S_ISDIR(info.st_mode):
                known["entry"] = {"kind": "folder", "mode": mode_of(info)}
            else:
                known["stamp"] = stamp_of(info, time.time_ns())
            with contextlib.suppress(UnicodeEncodeError):  # a name that no manifest can have
                path.encode()
                found[path] = known
    return found


def mode_of(info: os.stat_result) -> int:
    return stat.S_IMODE(info.st_mode) & 0o777


class IndexFiles:
    """The indexes of all local workspaces; read from disk again only if another worker wrote them."""

    def __init__(self) -> None:
        self._cached: OrderedDict[Path, tuple[tuple[int, int], Index]] = OrderedDict()

    def find_cached(self, home: Path) -> Index | None:
        """The index, if it is in memory and no other worker wrote it since."""
        file = home / "index.json"
        cached = self._cached.get(file)
        with contextlib.suppress(FileNotFoundError):
            return cached[1] if cached and cached[0] == _stamp_file(file) else None
        return None

    def load(self, home: Path) -> Index:
        if (known := self.find_cached(home)) is not None:
            return known
        file = home / "index.json"
        try:
            written = _stamp_file(file)
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
        self._remember(file, _stamp_file(file), index)

    def forget(self, home: Path) -> None:
        self._cached.pop(home / "index.json", None)

    def _remember(self, file: Path, written: tuple[int, int], index: Index) -> None:
        self._cached[file] = (written, index)
        self._cached.move_to_end(file)
        total = sum(len(cached["entries"]) for _, cached in self._cached.values())
        while total > ENTRIES_IN_MEMORY and len(self._cached) > 1:
            _, (_, oldest) = self._cached.popitem(last=False)
            total -= len(oldest["entries"])


def _stamp_file(file: Path) -> tuple[int, int]:
    info = file.stat()
    return info.st_ino, info.st_mtime_ns


@contextlib.asynccontextmanager
async def lock_workspace(home: Path) -> AsyncIterator[None]:
    """Lock a workspace against other workers of the same directory. The system drops the lock of one that dies."""
    while (fd := try_lock_workspace(home)) is None:  # noqa: ASYNC110 - another process holds it, which no event shows
        await asyncio.sleep(LOCK_POLL_SECONDS)
    try:
        yield
    finally:
        os.close(fd)


def try_lock_workspace(home: Path) -> int | None:
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
