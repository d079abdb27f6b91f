"""Files of messages. They enter the workspace with the session that reads the message; while that session is queued,
the sessions before it do not see them."""

import json

from store import workspaces
from store.database import Connection
from store.sessions import SessionRow
from store.workspaces import Manifest


async def add(connection: Connection, session: SessionRow, files: Manifest) -> None:
    """Store the files, in the transaction that accepts the message."""
    if session.live:
        await workspaces.change_in(connection, session.tenant, session.workspace_id, lambda known: {**known, **files})
        return
    await connection.execute(
        """INSERT INTO queued_files (tenant, session_id, manifest) VALUES ($1, $2, $3)
           ON CONFLICT (tenant, session_id) DO UPDATE
           SET manifest = (queued_files.manifest::jsonb || excluded.manifest::jsonb)::text""",
        session.tenant,
        session.id,
        json.dumps(files),
    )


async def enter(connection: Connection, tenant: str, session_id: str) -> None:
    """Move the files to the workspace once, in the transaction that lets the session begin."""
    row = await connection.fetchrow(
        """DELETE FROM queued_files q USING sessions s
            WHERE q.tenant = $1 AND q.session_id = $2 AND s.tenant = q.tenant AND s.id = q.session_id AND s.live
           RETURNING q.manifest, s.workspace_id""",
        tenant,
        session_id,
    )
    if row is not None:
        files: Manifest = json.loads(row["manifest"])
        await workspaces.change_in(connection, tenant, row["workspace_id"], lambda known: {**known, **files})
