"""Workspaces: the directory a thread's tools work in, kept in the file store so that any worker can restore it."""

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import stat
from pathlib import Path
from urllib.parse import quote, unquote

from pydantic import BaseModel, Field

from activities.tools.support.paths import Workspace
from domain.policy.subjects import PathError
from store import files, workspaces
from store.database import Pool
from store.workspaces import Manifest

LARGEST_KEPT = 20_000_000  # bytes of one file; a larger one stays on this worker only
MOST_KEPT = 5_000  # files


class Known(BaseModel):
    """A file as this worker last saw it in step with the store."""

    size: int
    mtime_ns: int
    mode: int
    sha256: str


class Index(BaseModel):
    """What the local directory holds, as of which version of the manifest."""

    version: int = -1
    files: dict[str, Known] = Field(default_factory=dict)


class Workspaces:
    def __init__(self, pool: Pool, root: Path) -> None:
        self._pool = pool
        self._root = root
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._indexes: dict[tuple[str, str], Index] = {}

    async def ready(self, tenant: str, workspace_id: str, version: int) -> Path:
        """The directory, brought up to `version` of its manifest; files that only this worker has are left alone."""
        folder = self._folder(tenant, workspace_id)
        async with self._lock(tenant, workspace_id):
            index = self._index(tenant, workspace_id) if folder.exists() else Index()
            if index.version < version or not folder.exists():
                folder.mkdir(parents=True, exist_ok=True)
                newest, manifest = await workspaces.get(self._pool, tenant, workspace_id)
                await self._restore(tenant, folder, index, manifest)
                self._save(tenant, workspace_id, Index(version=newest, files=index.files))
        return folder

    async def keep(self, tenant: str, workspace_id: str) -> None:
        """Put what changed since the last time into the file store and the manifest."""
        folder = self._folder(tenant, workspace_id)
        async with self._lock(tenant, workspace_id):
            index = self._index(tenant, workspace_id)
            now, contents = await asyncio.to_thread(_scan, folder, index.files)
            changed = {path: known for path, known in now.items() if index.files.get(path) != known}
            gone = [path for path in index.files if path not in now]
            if not any(index.files.get(path, known).sha256 != known.sha256 for path, known in changed.items()) and not (
                gone or set(changed) - set(index.files)
            ):
                return
            await files.put_blobs(self._pool, tenant, list(contents.values()))

            def merge(manifest: Manifest) -> Manifest:
                kept = {path: entry for path, entry in manifest.items() if path not in gone}
                return kept | {
                    path: {"sha256": known.sha256, "size": known.size, "mode": known.mode}
                    for path, known in changed.items()
                }

            version, _ = await workspaces.update(self._pool, tenant, workspace_id, merge)
            # another worker's version in between is fetched before the next call
            current = version if version == index.version + 1 or index.version < 0 else index.version
            self._save(tenant, workspace_id, Index(version=current, files=now))

    async def forget(self) -> None:
        """Delete the directories of workspaces that were removed from the store."""
        here = {(unquote(path.parent.name), path.name): path for path in await asyncio.to_thread(self._folders)}
        for key in await workspaces.removed(self._pool, list(here)):
            async with self._lock(*key):
                self._indexes.pop(key, None)
                await asyncio.to_thread(shutil.rmtree, here[key], ignore_errors=True)

    def _folders(self) -> list[Path]:
        return list(self._root.glob("*/*"))

    async def _restore(self, tenant: str, folder: Path, index: Index, manifest: Manifest) -> None:
        wanted = {
            path: entry
            for path, entry in manifest.items()
            if path not in index.files or index.files[path].sha256 != entry["sha256"]
        }
        contents = await files.get_blobs(self._pool, tenant, [entry["sha256"] for entry in wanted.values()])
        door = Workspace(folder)
        for path, entry in wanted.items():
            await asyncio.to_thread(door.write, path, contents[entry["sha256"]])
            target = folder / path
            os.chmod(target, entry["mode"], follow_symlinks=os.chmod not in os.supports_follow_symlinks)
            index.files[path] = _seen(target.lstat(), entry["sha256"])
        for path in [path for path in index.files if path not in manifest]:
            with contextlib.suppress(FileNotFoundError):
                (folder / path).unlink()
            del index.files[path]

    def _folder(self, tenant: str, workspace_id: str) -> Path:
        return self._root / quote(tenant, safe="") / workspace_id / "files"

    def _lock(self, tenant: str, workspace_id: str) -> asyncio.Lock:
        return self._locks.setdefault((tenant, workspace_id), asyncio.Lock())

    def _index(self, tenant: str, workspace_id: str) -> Index:
        key = (tenant, workspace_id)
        if key not in self._indexes:
            try:
                text = self._folder(*key).with_name("index.json").read_text()
                self._indexes[key] = Index.model_validate_json(text)
            except (FileNotFoundError, ValueError):
                self._indexes[key] = Index()
        return self._indexes[key]

    def _save(self, tenant: str, workspace_id: str, index: Index) -> None:
        self._indexes[tenant, workspace_id] = index
        target = self._folder(tenant, workspace_id).with_name("index.json")
        temporary = target.with_suffix(".tmp")
        temporary.write_text(json.dumps(index.model_dump()))
        temporary.replace(target)


def _seen(info: os.stat_result, digest: str) -> Known:
    return Known(size=info.st_size, mtime_ns=info.st_mtime_ns, mode=stat.S_IMODE(info.st_mode) & 0o777, sha256=digest)


def _scan(folder: Path, before: dict[str, Known]) -> tuple[dict[str, Known], dict[str, bytes]]:
    """Every plain file below the folder, and the bytes of those that changed; links are neither followed nor kept."""
    door = Workspace(folder)
    now: dict[str, Known] = {}
    contents: dict[str, bytes] = {}
    for here, _, names, fd in os.fwalk(folder, follow_symlinks=False):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(here, name), folder)
            with contextlib.suppress(FileNotFoundError, PathError, UnicodeEncodeError):
                info = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if not stat.S_ISREG(info.st_mode) or info.st_size > LARGEST_KEPT or len(now) >= MOST_KEPT:
                    continue
                path.encode()
                known = before.get(path)
                if known is None or (known.size, known.mtime_ns) != (info.st_size, info.st_mtime_ns):
                    content = door.read(path, LARGEST_KEPT)
                    digest = hashlib.sha256(content).hexdigest()
                    if known is None or known.sha256 != digest:
                        contents[path] = content
                    known = _seen(info, digest)
                now[path] = known
    return now, contents
