"""Quotas of a tenant: how many bytes it may keep."""

from api.auth import Call
from domain.errors import Conflict
from store import workspaces
from store.workspaces import Manifest, stored_bytes


async def check_workspaces(call: Call, files: Manifest) -> None:
    """Refuse a task whose files no longer fit into the tenant's workspaces."""
    quota = call.settings.tenant_workspace_bytes
    if not quota or not files:
        return
    used = await workspaces.bytes_of_tenant(call.pool, call.tenant)
    size = sum(map(stored_bytes, files.values()))
    if used + size > quota:
        raise exceeded("workspaces", "ERRAND_TENANT_WORKSPACE_BYTES", quota, used, size)


def exceeded(what: str, setting: str, quota: int, used: int, size: int) -> Conflict:
    detail = f"This tenant's {what} may hold {quota:,} bytes ({setting}). They hold {used:,}, and this adds {size:,}."
    return Conflict(detail, type="quota-exceeded", limit=setting, limit_bytes=quota, used_bytes=used, added_bytes=size)
