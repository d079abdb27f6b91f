"""Workspaces: the directory in which a thread's tools work, saved in the file store so that any worker can restore
it."""

import asyncio
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

from activities.runtime.workspace_index import Index, IndexFiles, empty_index, locked
from activities.runtime.workspace_report import KeepReport
from activities.runtime.workspace_restore import WorkspaceRestore
from activities.runtime.workspace_scan import WorkspaceCaps, WorkspaceScan
from activities.tools.support.paths import Workspace
from store import files, workspaces
from store.database import Pool, patiently
from store.workspaces import Manifest, without_conflicts

AT_ONCE = 4  # batches of contents in memory, and threads that handle them
PATIENCE = 15.0  # seconds: the work of a command must survive a restart of the database
USAGE_SECONDS = 10.0  # a tenant's usage is summed up again only after this time

T = TypeVar("T")


class Workspaces:
    def __init__(self, pool: Pool, root: Path, caps: WorkspaceCaps | None = None, tenant_bytes: int = 0) -> None:
        self._pool = pool
        self._root = root
        self._caps = caps or WorkspaceCaps()
        self._tenant_bytes = tenant_bytes  # 0: no limit
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._indexes = IndexFiles()
        self._used: dict[str, tuple[float, int]] = {}  # by tenant: time of the sum, and bytes
        # its own threads, so that slow disks do not delay other work
        self._threads = ThreadPoolExecutor(AT_ONCE, "workspaces")
        self._batches = asyncio.Semaphore(AT_ONCE)

    def folder(self, tenant: str, workspace_id: str) -> Path:
        """Where the files of a workspace are on this worker, once `ready` has put them there."""
        return self._home(tenant, workspace_id) / "files"

    async def ready(self, tenant: str, workspace_id: str, version: int) -> Path:
        """The directory, updated to `version` of its manifest. Files that only this worker has are left alone."""
        home = self._home(tenant, workspace_id)
        folder = self.folder(tenant, workspace_id)
        async with self._lock(tenant, workspace_id), locked(home):
            exists = folder.exists()
            index = await self._index(home) if exists else empty_index()
            if index["version"] < version or not exists:
                folder.mkdir(exist_ok=True)
                newest, manifest = await workspaces.get(self._pool, tenant, workspace_id)
                await self._restore(tenant, home, index, newest, manifest)
        return folder

    async def keep(self, tenant: str, workspace_id: str) -> KeepReport:
        """Save the changes since the last time to the file store and the manifest."""
        home = self._home(tenant, workspace_id)
        async with self._lock(tenant, workspace_id), locked(home):
            index = await self._index(home)
            scan = WorkspaceScan(Workspace(home / "files"), index, self._caps, await self._room(tenant))
            await self._store(tenant, scan)
            version = index["version"]
            if scan.changed or scan.gone:
                version = await self._write_manifest(tenant, workspace_id, version, scan)
            new: Index = {"version": version, "entries": scan.entries, "skipped": scan.skipped}
            if new != index:
                await self._in_thread(lambda: self._indexes.save(home, new))
        return KeepReport({path: why for path, why in scan.skipped.items() if index["skipped"].get(path) != why})

    async def forget(self) -> None:
        """Delete the directories of workspaces that no longer exist in the store."""
        here = {(unquote(path.parent.name), path.name): path for path in await asyncio.to_thread(self._homes)}
        for key in await workspaces.removed(self._pool, list(here)):
            async with self._lock(*key), locked(here[key]):
                self._indexes.forget(here[key])
                await asyncio.to_thread(shutil.rmtree, here[key], ignore_errors=True)

    def _homes(self) -> list[Path]:
        return list(self._root.glob("*/*"))

    async def _store(self, tenant: str, scan: WorkspaceScan) -> None:
        """Store the contents that a scan finds, one batch after the other."""
        batches = scan.batches()
        while True:
            async with self._batches:
                batch = await self._in_thread(lambda: next(batches, None))
                if batch is None:
                    return
                await patiently(partial(files.put_digested, self._pool, tenant, batch), seconds=PATIENCE)
            self._count(tenant, sum(map(len, batch.values())))

    async def _write_manifest(self, tenant: str, workspace_id: str, before: int, scan: WorkspaceScan) -> int:
        """Write the manifest; returns the version of the directory. Another worker's changes are fetched before the
        next call."""

        def merge(manifest: Manifest) -> Manifest:
            gone = set(scan.gone)
            kept = {path: entry for path, entry in manifest.items() if path not in gone}
            return without_conflicts(kept | scan.changed)

        version, _ = await patiently(
            lambda: workspaces.update(self._pool, tenant, workspace_id, merge), seconds=PATIENCE
        )
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
        known = self._indexes.known(home)
        return known if known is not None else await self._in_thread(lambda: self._indexes.load(home))

    async def _room(self, tenant: str) -> int | None:
        """Bytes that the tenant may still store; the sum may be some seconds old."""
        if not self._tenant_bytes:
            return None
        at, used = self._used.get(tenant, (0.0, 0))
        if not at or time.monotonic() - at > USAGE_SECONDS:
            used = await workspaces.bytes_of_tenant(self._pool, tenant)
            self._used[tenant] = (time.monotonic(), used)
        return max(0, self._tenant_bytes - used)

    def _count(self, tenant: str, size: int) -> None:
        at, used = self._used.get(tenant, (0.0, 0))
        self._used[tenant] = (at, used + size)

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
