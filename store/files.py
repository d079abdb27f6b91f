"""Files: bytes by content hash, referred to by id."""

import asyncio
import hashlib
from datetime import datetime, timedelta

from domain.audit import TENANT
from domain.events import EventRow
from domain.ids import new_id
from domain.sessions.session import SessionRef
from domain.sessions.writes import NewFile
from store import audit
from store.database import Connection, Pool, fetch_all, fetch_one, to_json

GRACE = timedelta(hours=24)  # bytes stored more recently may be about to be used


class File(NewFile):
    session_id: str | None
    created_by: str
    created_at: datetime


_COLUMNS = ", ".join(File.model_fields)


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def put_blobs(pool: Pool, tenant: str, contents: list[bytes]) -> list[str]:
    """Store bytes, each content once. Returns their hashes in order."""
    digests = await asyncio.to_thread(lambda: [digest_of(content) for content in contents])
    await put_digested(pool, tenant, dict(zip(digests, contents, strict=True)))
    return digests


async def put_digested(pool: Pool, tenant: str, contents: dict[str, bytes]) -> None:
    """Store bytes by their hashes. Content that exists is not sent again, and is protected from being dropped soon."""
    if not contents:
        return
    known = await pool.fetch(
        # Lock in the same order everywhere, so that two such statements do not deadlock.
        """UPDATE blobs b SET put_at = now()
             FROM (SELECT sha256 FROM blobs WHERE tenant = $1 AND sha256 = ANY($2::text[])
                    ORDER BY sha256 FOR UPDATE) known
            WHERE b.tenant = $1 AND b.sha256 = known.sha256 RETURNING b.sha256""",
        tenant,
        list(contents),
    )
    missing = {digest: contents[digest] for digest in sorted(contents.keys() - {row["sha256"] for row in known})}
    if missing:
        sql = """INSERT INTO blobs (tenant, sha256, size, content)
                 SELECT $1, d, octet_length(c), c FROM unnest($2::text[], $3::bytea[]) AS x(d, c)
                 ON CONFLICT (tenant, sha256) DO UPDATE SET put_at = now()"""
        await pool.execute(sql, tenant, list(missing), list(missing.values()), timeout=60)


async def get_blobs(pool: Pool, tenant: str, digests: list[str]) -> dict[str, bytes]:
    sql = "SELECT sha256, content FROM blobs WHERE tenant = $1 AND sha256 = ANY($2::text[])"
    return {row["sha256"]: bytes(row["content"]) for row in await pool.fetch(sql, tenant, digests)}


async def put(
    pool: Pool, tenant: str, name: str, media_type: str, content: bytes, created_by: str = "", quota: int = 0
) -> File | None:
    """Store an uploaded file; None if the tenant's uploads would then exceed `quota` bytes (0: no limit)."""
    if quota and await count_uploaded_bytes(pool, tenant) + len(content) > quota:
        return None  # before anything is stored: bytes without a file would stay for a day
    [digest] = await put_blobs(pool, tenant, [content])
    async with pool.acquire() as connection, connection.transaction():
        if quota:  # one upload of a tenant at a time, so that two cannot both use the last room
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 2))", tenant)
            if await count_uploaded_bytes(connection, tenant) + len(content) > quota:
                await _loosen(connection, tenant, digest)
                return None
        sql = f"""INSERT INTO files (tenant, id, sha256, size, name, media_type, created_by)
                  VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING {_COLUMNS}"""
        row = await connection.fetchrow(sql, tenant, new_id(), digest, len(content), name, media_type, created_by)
    assert row is not None
    return File(**row)


async def count_uploaded_bytes(pool: "Pool | Connection", tenant: str) -> int:
    """The size of all uploaded files. Artifacts belong to their sessions and do not count."""
    sql = "SELECT coalesce(sum(size), 0)::bigint FROM files WHERE tenant = $1 AND session_id IS NULL"
    return int(await pool.fetchval(sql, tenant))


async def delete(pool: Pool, tenant: str, file_id: str, by: str) -> str | None:
    """Delete a file, unless an unfinished session was given it; in that case return the session's id.

    Its bytes are dropped later, and only if no other file and no workspace holds the same content.
    """
    async with pool.acquire() as connection, connection.transaction():
        sql = "SELECT sha256 FROM files WHERE tenant = $1 AND id = $2 FOR UPDATE"
        digest = await connection.fetchval(sql, tenant, file_id)
        sql = """SELECT s.id FROM file_uses u JOIN sessions s ON s.tenant = u.tenant AND s.id = u.session_id
                  WHERE u.tenant = $1 AND u.file_id = $2 AND s.status IN ('submitted', 'working', 'input_required')
                  LIMIT 1"""
        user: str | None = await connection.fetchval(sql, tenant, file_id)
        if digest is None or user is not None:
            return user
        await connection.execute("DELETE FROM files WHERE tenant = $1 AND id = $2", tenant, file_id)
        await _loosen(connection, tenant, digest)
        await audit.append(connection, tenant, TENANT, by, "delete_file", subject=file_id, inputs=digest)
    return None


async def use_in(connection: Connection, tenant: str, file_ids: list[str], session_id: str) -> None:
    """Record that a session was given these files by a message that arrived after the session was accepted."""
    await connection.execute(
        "INSERT INTO file_uses (tenant, file_id, session_id) SELECT DISTINCT $1, f, $3 FROM unnest($2::text[]) f"
        " ON CONFLICT DO NOTHING",
        tenant,
        file_ids,
        session_id,
    )


async def _loosen(connection: Connection, tenant: str, digest: str) -> None:
    """Note bytes that may be unused now; a sweep checks them."""
    sql = "INSERT INTO loose_blobs (tenant, sha256) VALUES ($1, $2) ON CONFLICT DO NOTHING"
    await connection.execute(sql, tenant, digest)


async def save_artifacts(
    pool: Pool, ref: SessionRef, run: str | None, new: list[NewFile], rows: list[EventRow], batch: str
) -> None:
    """Write artifacts that no tool call saved, with their events, once for each name of the batch."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT check_run($1, $2, $3, true, false)", ref.tenant, ref.session_id, run)
        sql = """INSERT INTO files (tenant, id, sha256, size, name, media_type, type, description, session_id)
                 SELECT $1, f.id, f.sha256, f.size, f.name, f.media_type, f.type, f.description, $2
                   FROM jsonb_populate_recordset(NULL::files, $3::jsonb) f ON CONFLICT DO NOTHING"""
        await connection.execute(sql, ref.tenant, ref.session_id, to_json(new))
        await connection.execute("SELECT append_events($1, true, $2::jsonb)", batch, to_json(rows))


async def get(pool: Pool, tenant: str, file_id: str) -> File | None:
    return await fetch_one(pool, File, f"SELECT {_COLUMNS} FROM files WHERE tenant = $1 AND id = $2", tenant, file_id)


async def find(pool: Pool, tenant: str, file_ids: list[str]) -> dict[str, File]:
    """Those of the ids that exist."""
    sql = f"SELECT {_COLUMNS} FROM files WHERE tenant = $1 AND id = ANY($2::text[])"
    return {row["id"]: File(**row) for row in await pool.fetch(sql, tenant, file_ids)}


async def of_session(pool: Pool, tenant: str, session_id: str) -> list[File]:
    """Its artifacts, without the files that only its model is shown."""
    sql = f"SELECT {_COLUMNS} FROM files WHERE tenant = $1 AND session_id = $2 AND type <> 'shown' ORDER BY id"
    return await fetch_all(pool, File, sql, tenant, session_id)


async def find_returned(pool: Pool, tenant: str, session_id: str) -> list[File]:
    """The files that a session leaves for the session that started it, oldest first. Addresses are not files."""
    sql = f"""SELECT {_COLUMNS} FROM files
               WHERE tenant = $1 AND session_id = $2 AND url IS NULL AND type <> 'shown'
               ORDER BY created_at, id LIMIT 100"""
    return await fetch_all(pool, File, sql, tenant, session_id)


async def contents(pool: Pool, tenant: str, file_ids: list[str]) -> dict[str, bytes]:
    """The bytes of those of the files that exist."""
    sql = """SELECT f.id, b.content FROM files f JOIN blobs b ON b.tenant = f.tenant AND b.sha256 = f.sha256
              WHERE f.tenant = $1 AND f.id = ANY($2::text[])"""
    return {row["id"]: bytes(row["content"]) for row in await pool.fetch(sql, tenant, file_ids, timeout=60)}


async def starts(pool: Pool, tenant: str, file_ids: list[str], length: int = 16) -> dict[str, bytes]:
    """The first bytes of each of the files."""
    sql = """SELECT f.id, substring(b.content FROM 1 FOR $3) AS start
               FROM files f JOIN blobs b ON b.tenant = f.tenant AND b.sha256 = f.sha256
              WHERE f.tenant = $1 AND f.id = ANY($2::text[])"""
    return {row["id"]: bytes(row["start"]) for row in await pool.fetch(sql, tenant, file_ids, length)}


async def content(pool: Pool, tenant: str, file_id: str) -> tuple[str, str, bytes] | None:
    """Name, media type and bytes of a file."""
    sql = """SELECT f.name, f.media_type, b.content
               FROM files f JOIN blobs b ON b.tenant = f.tenant AND b.sha256 = f.sha256
              WHERE f.tenant = $1 AND f.id = $2"""
    row = await pool.fetchrow(sql, tenant, file_id)
    return (row["name"], row["media_type"], bytes(row["content"])) if row else None


# Retention: content is removed when its time is over; outcomes stay.


async def find_due(pool: Pool, limit: int) -> list[tuple[str, str]]:
    """Conversations whose retention time is over: tenant and id."""
    sql = """SELECT tenant, conversation_id FROM sessions
              WHERE content_removed_at IS NULL AND keep_until <= now() AND removable(tenant, conversation_id)
              ORDER BY keep_until LIMIT $1"""
    rows = await pool.fetch(sql, limit)
    return list(dict.fromkeys((row["tenant"], row["conversation_id"]) for row in rows))


async def remove_content(pool: Pool, tenant: str, conversation_id: str) -> bool:
    """Remove a conversation's content; False if it was removed before, or must be kept after all."""
    return bool(await pool.fetchval("SELECT remove_content($1, $2)", tenant, conversation_id))


async def drop_loose_bytes(pool: Pool) -> None:
    """Drop unused bytes once neither a file nor a workspace refers to them."""
    waiting = "SELECT 1 FROM loose_blobs l JOIN blobs b USING (tenant, sha256) WHERE b.put_at < now() - $1::interval"
    if await pool.fetchval(f"{waiting} LIMIT 1", GRACE) is None:
        return
    sql = """WITH looked_at AS MATERIALIZED (
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
                AND NOT EXISTS (SELECT 1 FROM held h WHERE h.tenant = b.tenant AND h.sha256 = b.sha256)"""
    await pool.execute(sql, GRACE, timeout=120)
