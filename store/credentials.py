"""Credentials by owner and name; the secrets are encrypted.

Three owners may have one of the same name, as with variables: a task's own comes before its user's, and that before the
tenant's. A task uses those of its session, whatever key continues its conversation.
"""

from collections.abc import Sequence
from typing import Any

from domain.audit import TENANT as CHAIN
from domain.credentials import Credential, CredentialRules, CredentialSpec, OwnedRules, SealedCredential
from domain.sealing import KeyRing
from store import audit
from store.database import Pool

SEALED_FOR = "credential"


def seal(keys: KeyRing, tenant: str, owner: str, name: str, spec: CredentialSpec) -> SealedCredential:
    """One as it is stored. It can be opened only under its owner and its name."""
    rules = spec.rules()
    place = OwnedRules(owner=owner, name=name, rules=rules).place
    secret = keys.seal(spec.secret, tenant, SEALED_FOR, place)
    return SealedCredential(owner=owner, name=name, rules=rules.model_dump_json(), secret=secret)


async def put(pool: Pool, tenant: str, new: SealedCredential, by: str) -> bool:
    """True if it is new."""
    async with pool.acquire() as connection, connection.transaction():
        added: bool = await connection.fetchval(
            """INSERT INTO credentials (tenant, owner, name, rules, secret) VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT (tenant, owner, name) DO UPDATE
               SET rules = excluded.rules, secret = excluded.secret, updated_at = now() RETURNING xmax = 0""",
            tenant,
            new.owner,
            new.name,
            new.rules,
            new.secret,
        )
        subject = _name_in_audit(new.owner, new.name)
        await audit.append(connection, tenant, CHAIN, by, "put_credential", subject=subject, inputs=new.rules)
    return added


async def list_all(pool: Pool, tenant: str, owners: Sequence[str]) -> list[OwnedRules]:
    """Those of these owners by name; of one name, that of the first owner comes first."""
    rows = await pool.fetch(
        """SELECT owner, name, rules FROM credentials WHERE tenant = $1 AND owner = ANY($2::text[])
            ORDER BY name, array_position($2, owner)""",
        tenant,
        list(owners),
    )
    return [_read(row) for row in rows]


async def open_named(
    pool: Pool, tenant: str, session_id: str, names: Sequence[str], keys: KeyRing
) -> dict[str, Credential]:
    """Those that exist for a session, with their secrets. Raises SealingError if one cannot be read."""
    rows = await pool.fetch(
        """SELECT DISTINCT ON (c.name) c.owner, c.name, c.rules, c.secret
             FROM sessions s
             CROSS JOIN LATERAL unnest(ARRAY['task/' || s.conversation_id, 'user/' || s.created_by, ''])
                                WITH ORDINALITY AS o(owner, rank)
             JOIN credentials c ON c.tenant = s.tenant AND c.owner = o.owner
            WHERE s.tenant = $1 AND s.id = $2 AND c.name = ANY($3::text[]) ORDER BY c.name, o.rank""",
        tenant,
        session_id,
        list(names),
    )
    found: dict[str, Credential] = {}
    for row in rows:
        one = _read(row)
        found[one.name] = Credential(**dict(one), secret=keys.unseal(row["secret"], tenant, SEALED_FOR, one.place))
    return found


async def remove(pool: Pool, tenant: str, owner: str, name: str, by: str) -> bool:
    async with pool.acquire() as connection, connection.transaction():
        found = await connection.fetchval(
            "DELETE FROM credentials WHERE tenant = $1 AND owner = $2 AND name = $3 RETURNING name", tenant, owner, name
        )
        if found is not None:
            subject = _name_in_audit(owner, name)
            await audit.append(connection, tenant, CHAIN, by, "remove_credential", subject=subject)
    return found is not None


def _read(row: Any) -> OwnedRules:
    rules = CredentialRules.model_validate_json(row["rules"])
    return OwnedRules(owner=row["owner"], name=row["name"], rules=rules)


def _name_in_audit(owner: str, name: str) -> str:
    return f"{owner}/{name}".lstrip("/")
