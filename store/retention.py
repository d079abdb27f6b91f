"""Retention: content is removed when its time is over; outcomes stay."""

from datetime import timedelta

from store.database import Pool

GRACE = timedelta(hours=24)  # bytes stored more recently may be about to be used


async def due(pool: Pool, limit: int) -> list[tuple[str, str]]:
    """Conversations whose retention time is over: tenant and id."""
    rows = await pool.fetch(
        """SELECT tenant, conversation_id FROM sessions
            WHERE content_removed_at IS NULL AND keep_until <= now() AND removable(tenant, conversation_id)
            ORDER BY keep_until LIMIT $1""",
        limit,
    )
    return list(dict.fromkeys((row["tenant"], row["conversation_id"]) for row in rows))


async def remove_content(pool: Pool, tenant: str, conversation_id: str) -> bool:
    """Remove a conversation's content; False if it was removed before, or must be kept after all."""
    return bool(await pool.fetchval("SELECT remove_content($1, $2)", tenant, conversation_id))


async def drop_loose_bytes(pool: Pool) -> None:
    """Drop unused bytes once neither a file nor a workspace refers to them."""
    waiting = "SELECT 1 FROM loose_blobs l JOIN blobs b USING (tenant, sha256) WHERE b.put_at < now() - $1::interval"
    if await pool.fetchval(f"{waiting} LIMIT 1", GRACE) is None:
        return
    await pool.execute(
        """WITH looked_at AS MATERIALIZED (
               SELECT l.tenant, l.sha256 FROM loose_blobs l JOIN blobs b USING (tenant, sha256)
                WHERE b.put_at < now() - $1::interval LIMIT 1000),
           held AS (
               SELECT DISTINCT tenant, jsonb_path_query(manifest::jsonb, '$.*.sha256') #>> '{}' AS sha256
                 FROM workspaces WHERE tenant IN (SELECT tenant FROM looked_at)
               UNION SELECT tenant, jsonb_path_query(manifest::jsonb, '$.*.sha256') #>> '{}'
                 FROM queued_files WHERE tenant IN (SELECT tenant FROM looked_at)
               UNION SELECT tenant, jsonb_path_query(undo::jsonb, '$.*.sha256') #>> '{}'
                 FROM workspace_changes WHERE tenant IN (SELECT tenant FROM looked_at)),
           settled AS (
               DELETE FROM loose_blobs l USING looked_at d WHERE l.tenant = d.tenant AND l.sha256 = d.sha256)
           DELETE FROM blobs b USING looked_at d
            WHERE b.tenant = d.tenant AND b.sha256 = d.sha256 AND b.put_at < now() - $1::interval
              AND NOT EXISTS (SELECT 1 FROM files f WHERE f.tenant = b.tenant AND f.sha256 = b.sha256)
              AND NOT EXISTS (SELECT 1 FROM held h WHERE h.tenant = b.tenant AND h.sha256 = b.sha256)""",
        GRACE,
        timeout=120,
    )
