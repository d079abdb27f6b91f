"""File diffs: the change that a call would make to a file of the workspace, for the people who approve it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from domain.differences import diff
from domain.policy.rules import canonical_path
from store import files, workspaces
from store.database import Pool
from store.workspaces import with_holes

LARGEST = 1_000_000  # bytes; larger files are not compared


@dataclass(frozen=True)
class FileChange:
    """The change that a call would make to one file."""

    path: str
    after: Callable[
        [str | None], str | None
    ]  # takes the present text (None: no file); returns None if the call would fail


async def diff_of(pool: Pool, tenant: str, workspace_id: str, change: FileChange) -> dict[str, str]:
    """{"diff"}, or {"note"} with the reason why there is none. The file is read as the last tool left it."""
    path = canonical_path(change.path)
    _, manifest = await workspaces.get(pool, tenant, workspace_id)
    entry = manifest.get(path)
    if entry is not None and "kind" in entry:
        return {"note": f"{path} is a {entry['kind']} now, so it cannot be compared."}
    if entry is not None and (size := entry.get("length", entry["size"])) > LARGEST:
        return {"note": f"{path} has {size:,} bytes now, too many to be compared."}
    before: str | None = None
    if entry is not None:
        content = (await files.get_blobs(pool, tenant, [entry["sha256"]])).get(entry["sha256"])
        if content is None:
            return {"note": f"What {path} holds now is no longer kept, so it cannot be compared."}
        try:
            before = with_holes(entry, content).decode()
        except UnicodeDecodeError:
            return {"note": f"{path} is not text now ({entry['size']:,} bytes), so it cannot be compared."}
    after = change.after(before)
    if after is None:
        return {"note": f"As {path} is now, this call would fail and change nothing."}
    if before == after:
        return {"note": f"{path} holds exactly this already."}
    return {"diff": await asyncio.to_thread(diff, path, before, after)}
