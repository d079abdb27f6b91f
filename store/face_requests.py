"""The requests that came through a face, by public id; everything else is in the session."""

from domain.faces import FaceRequest, StoredFaceRequest
from store import audit
from store.database import Connection, Pool

REPEAT_SECONDS = 60  # a repetition follows within this time after the earlier request, or after the end of its wait


async def add(connection: "Pool | Connection", tenant: str, row: FaceRequest) -> None:
    """Store a request. The first one of an id stays, and a repetition changes nothing. The request of a new session is
    added when the session is accepted."""
    sql = """INSERT INTO face_requests (tenant, face, public_id, session_id, part, request, digest)
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING"""
    await connection.execute(sql, tenant, row.face, row.public_id, row.session_id, row.part, row.request, row.digest)


async def of_session(pool: Pool, tenant: str, face: str, session_id: str) -> dict[int, StoredFaceRequest]:
    """The requests that led to the parts of a session, by part; empty for a task of another face."""
    sql = """SELECT face, public_id, session_id, part, request, digest, created_at, deleted_at FROM face_requests
              WHERE tenant = $1 AND session_id = $3 AND face = $2"""
    return {row["part"]: StoredFaceRequest(**row) for row in await pool.fetch(sql, tenant, face, session_id)}


async def find_repeated(pool: Pool, tenant: str, face: str, digest: str) -> str | None:
    """The public id of the same request made just before. Without `background`, its caller waited until the end."""
    sql = """SELECT public_id FROM face_requests f JOIN sessions s ON s.tenant = f.tenant AND s.id = f.session_id
              WHERE f.tenant = $1 AND f.face = $2 AND f.digest = $3 AND f.deleted_at IS NULL
                AND (f.created_at > now() - make_interval(secs => $4)
                     OR (f.request::jsonb -> 'background' IS DISTINCT FROM 'true'
                         AND coalesce(s.ended_at, now()) > now() - make_interval(secs => $4)))
              ORDER BY f.created_at DESC LIMIT 1"""
    found: str | None = await pool.fetchval(sql, tenant, face, digest, REPEAT_SECONDS)
    return found


async def delete(pool: Pool, tenant: str, row: FaceRequest, chain: str, actor: str) -> None:
    """Hide a task in its face. The task, its record and the audit log stay until their retention is over."""
    async with pool.acquire() as connection, connection.transaction():
        await add(connection, tenant, row)
        sql = """UPDATE face_requests SET deleted_at = coalesce(deleted_at, now())
                  WHERE tenant = $1 AND face = $2 AND public_id = $3"""
        await connection.execute(sql, tenant, row.face, row.public_id)
        await audit.append(
            connection, tenant, chain, actor, "delete_response", session_id=row.session_id, subject=row.public_id
        )
