"""Environments by name, and the commit that a workspace was made from."""

from domain.environments import EnvironmentSpec, Tree
from store.database import Pool


async def put(pool: Pool, tenant: str, name: str, spec: EnvironmentSpec) -> bool:
    """True if it is new."""
    new: bool = await pool.fetchval(
        """INSERT INTO environments (tenant, name, spec) VALUES ($1, $2, $3)
           ON CONFLICT (tenant, name) DO UPDATE SET spec = excluded.spec, updated_at = now() RETURNING xmax = 0""",
        tenant,
        name,
        spec.model_dump_json(),
    )
    return new


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
    text = await pool.fetchval(
        """INSERT INTO workspaces (tenant, id, tree) VALUES ($1, $2, $3)
           ON CONFLICT (tenant, id) DO UPDATE SET tree = coalesce(workspaces.tree, excluded.tree) RETURNING tree""",
        tenant,
        workspace_id,
        tree.model_dump_json(exclude_defaults=True),
    )
    return Tree.model_validate_json(text)
