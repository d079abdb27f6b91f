"""Restoring a workspace: change the directory from what the index records to what the manifest says.

This runs in a thread. Files that only this worker has are left alone. An entry that a running command keeps from being
restored is left out of the index, so that it is tried again with the next version.
"""

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from activities.runtime.workspace_index import Index, KnownEntry, stamp_of
from activities.runtime.workspace_scan import BATCH_BYTES, BATCH_FILES, stays_inside
from activities.tools.support.paths import Workspace
from domain.policy.subjects import PathError
from store.workspaces import Manifest, pieces_of, stored_bytes

log = logging.getLogger("errand.worker")


@dataclass
class WorkspaceRestore:
    workspace: Workspace
    index: Index
    manifest: Manifest

    entries: dict[str, KnownEntry] = field(default_factory=dict)  # the new index

    def clear(self) -> None:
        """Remove entries that the manifest no longer has, deepest first, and create its folders."""
        self.entries.update(self.index["entries"])
        for path in sorted(self.entries.keys() - self.manifest.keys(), reverse=True):
            with _logged(path):
                # a folder with files that only this worker has is kept
                self.workspace.remove(path)
            del self.entries[path]
        for path in sorted(self._wanted("folder")):
            with _logged(path):
                self.workspace.make_folder(path)

    def batches(self) -> Iterator[list[str]]:
        """The files to write, a limited number of bytes at a time."""
        batch: list[str] = []
        size = 0
        for path, entry in self._wanted(None).items():
            if batch and (size + stored_bytes(entry) > BATCH_BYTES or len(batch) >= BATCH_FILES):
                yield batch
                batch, size = [], 0
            batch.append(path)
            size += stored_bytes(entry)
        if batch:
            yield batch

    def write(self, paths: list[str], contents: dict[str, bytes]) -> None:
        for path in paths:
            entry = self.manifest[path]
            content = contents.get(entry["sha256"])
            if content is None:
                log.error("the content of a workspace's file is missing in the store (%s)", entry["sha256"])
                continue
            with _logged(path):
                self._out_of_the_way(path)
                length = entry.get("length", len(content))
                info = self.workspace.put(path, pieces_of(entry, content), length, entry["mode"] & 0o777)
                self.entries[path] = {"entry": entry, "stamp": stamp_of(info, time.time_ns())}

    def finish(self) -> None:
        """Create the links, then set the modes of folders, because a read-only folder could not have been filled."""
        for path, entry in self._wanted("link").items():
            if stays_inside(path, entry["target"]):
                with _logged(path):
                    self._out_of_the_way(path)
                    self.workspace.link(path, entry["target"])
                    self.entries[path] = {"entry": entry, "stamp": None}
        for path in sorted(self._wanted("folder"), reverse=True):
            with _logged(path):
                self.workspace.set_folder_mode(path, self.manifest[path]["mode"] & 0o777)
                self.entries[path] = {"entry": self.manifest[path], "stamp": None}

    def _wanted(self, kind: str | None) -> Manifest:
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
def _logged(path: str) -> Iterator[None]:
    try:
        yield
    except (PathError, OSError) as error:
        log.warning("a name in a workspace cannot be restored (%s)", type(error).__name__)
