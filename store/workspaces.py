"""Workspace manifests: the files (by content hash), folders and links of a workspace."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from typing_extensions import TypedDict

from domain.environments import Tree
from store.database import Connection, Pool

LARGE = 100_000  # characters; a longer manifest is not parsed in the event loop


class ManifestEntry(TypedDict, total=False):
    """One file, folder or link; a file has no `kind`."""

    sha256: str  # of the stored bytes
    size: int  # stored bytes, without the holes of a sparse file
    mode: int
    length: int  # of a file with holes
    extents: list[list[int]]  # of a file with holes: offset and length of its data
    kind: str  # folder | link | gone: the tree under the manifest has it, and the workspace does not
    target: str  # of a link


Manifest = dict[str, ManifestEntry]  # by path
Change = Callable[[Manifest], Manifest]
Fence = Callable[[Connection], Awaitable[None]]  # raises if a call may write no more, in the transaction that would


def count_stored_bytes(entry: ManifestEntry) -> int:
    return entry.get("size", 0)


def pieces_of(entry: ManifestEntry, content: bytes) -> list[tuple[int, bytes]]:
    """The stored bytes of a file at their offsets; between them are holes."""
    pieces: list[tuple[int, bytes]] = []
    start = 0
    for offset, length in entry.get("extents", [[0, len(content)]]):
        pieces.append((offset, content[start : start + length]))
        start += length
    return pieces


def with_holes(entry: ManifestEntry, content: bytes) -> bytes:
    """The content of a file; only for one that is known to be small."""
    whole = bytearray(entry.get("length", len(content)))
    for offset, piece in pieces_of(entry, content):
        whole[offset : offset + len(piece)] = piece
    return bytes(whole)


def without_conflicts(manifest: Manifest) -> Manifest:
    """Resolve conflicts: if two workers made a file and a folder of one name, the file is kept, and nothing below
    it."""
    plain = {path for path, entry in manifest.items() if entry.get("kind") not in ("folder", "gone")}
    return {path: entry for path, entry in manifest.items() if not any(above in plain for above in _above(path))}


def _above(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(1, len(names))]


async def get(pool: "Pool | Connection", tenant: str, workspace_id: str) -> tuple[int, Manifest]:
    """The version, and what the workspace has besides its tree."""
    version, manifest, _ = await get_all(pool, tenant, workspace_id)
    return version, {path: entry for path, entry in manifest.items() if entry.get("kind") != "gone"}


async def get_all(pool: "Pool | Connection", tenant: str, workspace_id: str) -> tuple[int, Manifest, Tree | None]:
    """The same with what was removed from the tree, and the tree."""
    sql = "SELECT version, manifest, tree FROM workspaces WHERE tenant = $1 AND id = $2"
    row = await pool.fetchrow(sql, tenant, workspace_id)
    if row is None:
        return 0, {}, None
    tree = Tree.model_validate_json(row["tree"]) if row["tree"] is not None else None
    return row["version"], await _parse(row["manifest"]), tree


async def bytes_of_tenant(pool: Pool, tenant: str) -> int:
    """The bytes of all workspaces of a tenant, including earlier versions of files that reruns need."""
    sql = "SELECT coalesce(sum(bytes + history_bytes), 0)::bigint FROM workspaces WHERE tenant = $1"
    return int(await pool.fetchval(sql, tenant))


async def find_removed(pool: Pool, keys: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those workspaces, given by tenant and id, that are known to be gone. A workspace is named after its first
    session."""
    sql = """SELECT s.tenant, s.id
               FROM sessions s JOIN unnest($1::text[], $2::text[]) AS k(t, i) ON s.tenant = t AND s.id = i
              WHERE s.content_removed_at IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM workspaces w WHERE w.tenant = s.tenant AND w.id = s.id)"""
    rows = await pool.fetch(sql, [tenant for tenant, _ in keys], [name for _, name in keys])
    return [(row["tenant"], row["id"]) for row in rows]


async def as_of(pool: Pool, tenant: str, workspace_id: str, when: datetime | int) -> Manifest:
    """The files of a workspace at a time or at a version; it does not wait for a session that is still changing
    them."""
    later = "c.version > $3" if isinstance(when, int) else "c.at > $3"
    sql = f"""SELECT w.manifest, c.undo FROM workspaces w
                LEFT JOIN workspace_changes c
                       ON c.tenant = w.tenant AND c.id = w.id AND {later} AND c.version <= w.version
               WHERE w.tenant = $1 AND w.id = $2 ORDER BY c.version DESC"""
    rows = await pool.fetch(sql, tenant, workspace_id, when)
    return await asyncio.to_thread(_undone, rows[0]["manifest"], [row["undo"] or "{}" for row in rows]) if rows else {}


def _undone(text: str, undos: list[str]) -> Manifest:
    found: dict[str, ManifestEntry | None] = json.loads(text)
    for undo in undos:
        found |= json.loads(undo)
    return {path: entry for path, entry in found.items() if entry is not None}


async def update(
    pool: Pool, tenant: str, workspace_id: str, change: Change, fence: Fence | None = None
) -> tuple[int, Manifest]:
    """Change the newest manifest under its row lock, so that two workers merge and do not overwrite each other."""
    async with pool.acquire() as connection, connection.transaction():
        if fence is not None:
            await fence(connection)
        return await change_in(connection, tenant, workspace_id, change)


async def change_in(connection: Connection, tenant: str, workspace_id: str, change: Change) -> tuple[int, Manifest]:
    """The same inside a transaction that writes more, such as the message that mentions the files."""
    sql = """INSERT INTO workspaces (tenant, id) VALUES ($1, $2)
             ON CONFLICT (tenant, id) DO UPDATE SET updated_at = now() RETURNING version, manifest"""
    row = await connection.fetchrow(sql, tenant, workspace_id)
    assert row is not None
    version = row["version"] + 1
    before: str = row["manifest"]
    changed = await asyncio.to_thread(_change, before, change) if len(before) > LARGE else _change(before, change)
    sql = "INSERT INTO workspace_changes (tenant, id, version, undo) VALUES ($1, $2, $3, $4)"
    await connection.execute(sql, tenant, workspace_id, version, changed.undo)
    sql = """UPDATE workspaces SET version = $3, manifest = $4, history_bytes = history_bytes + $5
              WHERE tenant = $1 AND id = $2"""
    await connection.execute(sql, tenant, workspace_id, version, changed.text, changed.replaced_bytes)
    return version, changed.manifest


@dataclass(frozen=True)
class _Changed:
    manifest: Manifest
    text: str  # JSON
    undo: str  # JSON
    replaced_bytes: int


def _change(text: str, change: Change) -> _Changed:
    before: Manifest = json.loads(text)
    after = change(dict(before))
    undo = {path: before.get(path) for path in {*before, *after} if before.get(path) != after.get(path)}
    replaced = sum(count_stored_bytes(entry) for entry in undo.values() if entry)
    return _Changed(after, json.dumps(after), json.dumps(undo), replaced)


async def _parse(text: str) -> Manifest:
    manifest: Manifest = await asyncio.to_thread(json.loads, text) if len(text) > LARGE else json.loads(text)
    return manifest


async def set_briefing(pool: Pool, tenant: str, workspace_id: str, text: str | None) -> None:
    """Note what the files of a workspace that exists say to every model that works in it."""
    sql = "UPDATE workspaces SET briefing = $3 WHERE tenant = $1 AND id = $2 AND briefing IS DISTINCT FROM $3"
    await pool.execute(sql, tenant, workspace_id, text)
