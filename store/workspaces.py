"""Workspace manifests: which files, by content hash, a workspace holds."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from store.database import Connection, Pool

Manifest = dict[str, dict[str, Any]]  # path -> {sha256, size, mode}


async def get(pool: Pool, tenant: str, workspace_id: str) -> tuple[int, Manifest]:
    row = await pool.fetchrow(
        "SELECT version, manifest FROM workspaces WHERE tenant = $1 AND id = $2", tenant, workspace_id
    )
    return (row["version"], json.loads(row["manifest"])) if row else (0, {})


async def removed(pool: Pool, keys: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those, given by tenant and id, that are known to be gone; a workspace is named after its first session."""
    rows = await pool.fetch(
        """SELECT s.tenant, s.id
             FROM sessions s JOIN unnest($1::text[], $2::text[]) AS k(t, i) ON s.tenant = t AND s.id = i
            WHERE s.content_removed_at IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM workspaces w WHERE w.tenant = s.tenant AND w.id = s.id)""",
        [tenant for tenant, _ in keys],
        [name for _, name in keys],
    )
    return [(row["tenant"], row["id"]) for row in rows]


async def as_of(pool: Pool, tenant: str, workspace_id: str, moment: datetime) -> Manifest:
    """What a workspace held then; a session that is still changing it is not waited for."""
    rows = await pool.fetch(
        """SELECT w.manifest, c.undo FROM workspaces w
             LEFT JOIN workspace_changes c
                    ON c.tenant = w.tenant AND c.id = w.id AND c.at > $3 AND c.version <= w.version
            WHERE w.tenant = $1 AND w.id = $2 ORDER BY c.version DESC""",
        tenant,
        workspace_id,
        moment,
    )
    manifest: Manifest = json.loads(rows[0]["manifest"]) if rows else {}
    for row in rows:
        manifest |= json.loads(row["undo"] or "{}")
        manifest = {path: entry for path, entry in manifest.items() if entry is not None}
    return manifest


async def update(
    pool: Pool, tenant: str, workspace_id: str, change: Callable[[Manifest], Manifest]
) -> tuple[int, Manifest]:
    """Change the newest manifest under its row lock, so that two workers merge instead of overwriting each other."""
    async with pool.acquire() as connection, connection.transaction():
        return await change_in(connection, tenant, workspace_id, change)


async def change_in(
    connection: Connection, tenant: str, workspace_id: str, change: Callable[[Manifest], Manifest]
) -> tuple[int, Manifest]:
    """The same in a transaction that writes more, such as the message that speaks of the files."""
    row = await connection.fetchrow(
        """INSERT INTO workspaces (tenant, id) VALUES ($1, $2)
           ON CONFLICT (tenant, id) DO UPDATE SET updated_at = now() RETURNING version, manifest""",
        tenant,
        workspace_id,
    )
    assert row is not None
    before: Manifest = json.loads(row["manifest"])
    manifest = change(dict(before))
    version = row["version"] + 1
    await connection.execute(
        "INSERT INTO workspace_changes (tenant, id, version, undo) VALUES ($1, $2, $3, $4)",
        tenant,
        workspace_id,
        version,
        json.dumps(_undo(before, manifest)),
    )
    await connection.execute(
        "UPDATE workspaces SET version = $3, manifest = $4 WHERE tenant = $1 AND id = $2",
        tenant,
        workspace_id,
        version,
        json.dumps(manifest),
    )
    return version, manifest


def _undo(before: Manifest, after: Manifest) -> dict[str, Any]:
    return {path: before.get(path) for path in {*before, *after} if before.get(path) != after.get(path)}
