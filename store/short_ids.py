"""Short ids of sessions, for people to type."""

import os

from store.database import Pool

SHORTEST_ID = 8  # characters; they cover one second, so that a later session rarely makes a short id ambiguous


async def short_ids(pool: Pool, tenant: str, ids: list[str]) -> dict[str, str]:
    """The shortest prefix of each id that no other session of the tenant has."""
    rows = await pool.fetch(
        """SELECT own.id, (SELECT max(s.id) FROM sessions s WHERE s.tenant = $1 AND s.id < own.id) AS before,
                  (SELECT min(s.id) FROM sessions s WHERE s.tenant = $1 AND s.id > own.id) AS after
             FROM unnest($2::text[]) AS own (id)""",
        tenant,
        ids,
    )
    return {row["id"]: _shortest(row["id"], row["before"] or "", row["after"] or "") for row in rows}


def _shortest(own: str, *neighbours: str) -> str:
    shared = max(len(os.path.commonprefix([own, other])) for other in neighbours)
    return own[: max(SHORTEST_ID, shared + 1)]
