"""Environments by name, and the commit that a workspace was made from."""

from domain.channels import Address
from domain.environments import EnvironmentSpec, Tree
from store import addresses
from store.database import Pool


async def put(pool: Pool, tenant: str, name: str, spec: EnvironmentSpec) -> bool:
    """True if it is new."""
    sql = """INSERT INTO environments (tenant, name, spec) VALUES ($1, $2, $3)
             ON CONFLICT (tenant, name) DO UPDATE SET spec = excluded.spec, updated_at = now() RETURNING xmax = 0"""
    return bool(await pool.fetchval(sql, tenant, name, spec.model_dump_json()))


async def get(pool: Pool, tenant: str, name: str) -> EnvironmentSpec | None:
    spec = await pool.fetchval("SELECT spec FROM environments WHERE tenant = $1 AND name = $2", tenant, name)
    return EnvironmentSpec.model_validate_json(spec) if spec is not None else None


async def list_all(pool: Pool, tenant: str) -> dict[str, EnvironmentSpec]:
    rows = await pool.fetch("SELECT name, spec FROM environments WHERE tenant = $1 ORDER BY name", tenant)
    return {row["name"]: EnvironmentSpec.model_validate_json(row["spec"]) for row in rows}


async def remove(pool: Pool, tenant: str, name: str) -> bool:
    done = await pool.execute("DELETE FROM environments WHERE tenant = $1 AND name = $2", tenant, name)
    return bool(done == "DELETE 1")


async def tree_of(pool: Pool, tenant: str, workspace_id: str) -> Tree | None:
    tree = await pool.fetchval("SELECT tree FROM workspaces WHERE tenant = $1 AND id = $2", tenant, workspace_id)
    return Tree.model_validate_json(tree) if tree is not None else None


async def set_tree(pool: Pool, tenant: str, workspace_id: str, tree: Tree) -> Tree:
    """The tree of the workspace: this one, unless another attempt has decided before."""
    sql = """INSERT INTO workspaces (tenant, id, tree) VALUES ($1, $2, $3)
             ON CONFLICT (tenant, id) DO UPDATE SET tree = coalesce(workspaces.tree, excluded.tree) RETURNING tree"""
    text = await pool.fetchval(sql, tenant, workspace_id, tree.model_dump_json(exclude_defaults=True))
    return Tree.model_validate_json(text)


async def find_setup(pool: Pool, tenant: str, key: str) -> tuple[str, int] | None:
    """The workspace in which a setup with this key ran last, and its version with what the setup made."""
    sql = """SELECT id, (tree::jsonb ->> 'setup_version')::bigint AS version FROM workspaces
              WHERE tenant = $1 AND tree::jsonb ->> 'setup' = $2 AND tree IS NOT NULL
              ORDER BY updated_at DESC LIMIT 1"""
    row = await pool.fetchrow(sql, tenant, key)
    return (row["id"], row["version"]) if row else None


async def record_setup(pool: Pool, tenant: str, workspace_id: str, tree: Tree) -> None:
    sql = "UPDATE workspaces SET tree = $3 WHERE tenant = $1 AND id = $2"
    await pool.execute(sql, tenant, workspace_id, tree.model_dump_json(exclude_defaults=True))


async def lead_events(pool: Pool, tenant: str, triggers: list[str], key: str, conversation_id: str) -> None:
    """Events of these triggers with a key continue a conversation, unless they have one already."""
    async with pool.acquire() as connection, connection.transaction():
        sql = "SELECT id FROM triggers WHERE tenant = $1 AND name = ANY($2::text[]) AND deleted_at IS NULL ORDER BY id"
        rows = await connection.fetch(sql, tenant, triggers)
        for row in rows:
            await addresses.lock(connection, tenant, Address.trigger(row["id"], "key", key), conversation_id)
