"""Credentials by owner and name; the secrets are encrypted.

Three owners may have one of the same name, as with variables: a task's own comes before its user's, and that before the
tenant's. A task uses those of its session, whatever key continues its conversation.
"""

from collections.abc import Sequence

from domain.credentials import Credential, CredentialSpec, OwnedRules, SealedCredential
from domain.sealing import KeyRing
from store import audit
from store.database import Pool, fetch_all

SEALED_FOR = "credential"


def seal(keys: KeyRing, tenant: str, owner: str, name: str, spec: CredentialSpec) -> SealedCredential:
    """One as it is stored. It can be opened only under its owner and its name."""
    rules = spec.rules()
    place = OwnedRules(owner=owner, name=name, rules=rules).place
    secret = keys.seal(spec.secret, tenant, SEALED_FOR, place)
    return SealedCredential(owner=owner, name=name, rules=rules.model_dump_json(), secret=secret)


async def put(pool: Pool, tenant: str, new: SealedCredential, by: str) -> bool:
    """True if it is new."""
    sql = """INSERT INTO credentials (tenant, owner, name, rules, secret) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (tenant, owner, name) DO UPDATE
             SET rules = excluded.rules, secret = excluded.secret, updated_at = now() RETURNING xmax = 0 AS added"""
    values, subject = (new.owner, new.name, new.rules, new.secret), _name_in_audit(new.owner, new.name)
    row = await audit.change(pool, tenant, by, "put_credential", sql, *values, subject=subject, inputs=new.rules)
    return row is not None and row["added"]


async def list_all(pool: Pool, tenant: str, owners: Sequence[str]) -> list[OwnedRules]:
    """Those of these owners by name; of one name, that of the first owner comes first."""
    sql = """SELECT owner, name, rules FROM credentials WHERE tenant = $1 AND owner = ANY($2::text[])
              ORDER BY name, array_position($2, owner)"""
    return await fetch_all(pool, OwnedRules, sql, tenant, list(owners))


async def open_named(
    pool: Pool, tenant: str, session_id: str, names: Sequence[str], keys: KeyRing
) -> dict[str, Credential]:
    """Those that exist for a session, with their secrets. Raises SealingError if one cannot be read."""
    sql = """SELECT DISTINCT ON (c.name) c.owner, c.name, c.rules, c.secret
               FROM sessions s
               CROSS JOIN LATERAL unnest(ARRAY['task/' || s.conversation_id, 'user/' || s.created_by, ''])
                                  WITH ORDINALITY AS o(owner, rank)
               JOIN credentials c ON c.tenant = s.tenant AND c.owner = o.owner
              WHERE s.tenant = $1 AND s.id = $2 AND c.name = ANY($3::text[]) ORDER BY c.name, o.rank"""
    rows = await pool.fetch(sql, tenant, session_id, list(names))
    found: dict[str, Credential] = {}
    for row in rows:
        one = OwnedRules(**row)
        found[one.name] = Credential(**dict(one), secret=keys.unseal(row["secret"], tenant, SEALED_FOR, one.place))
    return found


async def remove(pool: Pool, tenant: str, owner: str, name: str, by: str) -> bool:
    sql = "DELETE FROM credentials WHERE tenant = $1 AND owner = $2 AND name = $3 RETURNING name"
    subject = _name_in_audit(owner, name)
    return await audit.change(pool, tenant, by, "remove_credential", sql, owner, name, subject=subject) is not None


def _name_in_audit(owner: str, name: str) -> str:
    return f"{owner}/{name}".lstrip("/")
