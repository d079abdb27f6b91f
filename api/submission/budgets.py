"""The budget that a whole conversation shares, and the bytes that a tenant may store."""

from datetime import datetime, timedelta

from api.http.auth import Call
from api.http.problems import finding
from domain.errors import Conflict, Invalid
from domain.limits import KINDS
from domain.sessions.session_writes import NewBudget
from domain.task import TaskConfig, TreeConfig
from settings import Settings
from store import workspaces
from store.workspaces import Manifest, stored_bytes


def check(config: TaskConfig, settings: Settings) -> None:
    """Refuse a part that would get more than the whole."""
    whole = config.tree or TreeConfig()
    beyond = [
        finding(f"/config/tree/max_{kind}", "out_of_range", "beyond what this platform allows", [f"..{ceiling}"])
        for kind, ceiling in ceilings(settings).items()
        if (wanted := getattr(whole, f"max_{kind}")) is not None and wanted > ceiling
    ]
    if beyond:
        raise Invalid("A limit is out of range.", errors=beyond)
    over = [
        finding(f"/config/{name}", "out_of_range", f"more than /config/tree/{name} allows", [f"..{most}"])
        for name in ("ttl", "max_steps", "max_tokens", "max_cost_usd", "max_tool_calls")
        if (most := getattr(whole, name)) is not None and (getattr(config, name) or 0) > most
    ]
    if over:
        raise Invalid("A task cannot have more than it shares with its subagents.", errors=over)


def ceilings(settings: Settings) -> dict[str, float]:
    """The ceilings of a whole conversation, for each kind that the operator limits."""
    found = {kind: getattr(settings, f"max_tree_{kind}") for kind in KINDS}
    return {kind: ceiling for kind, ceiling in found.items() if ceiling is not None}


def budget(config: TaskConfig, now: datetime, settings: Settings) -> NewBudget | None:
    """The budget of the whole conversation, if the task or the platform limits it."""
    most = {f"max_{kind}": ceiling for kind, ceiling in ceilings(settings).items()}
    if config.tree is None and not most:
        return None
    wanted = config.tree or TreeConfig()
    limits = most | wanted.model_dump(exclude={"ttl"}, exclude_none=True)
    ends = now + timedelta(milliseconds=wanted.ttl) if wanted.ttl else None
    shared = {"deadline": ends, "low_percent": settings.budget_low_percent, "default": config.tree is None}
    return NewBudget.model_validate({**limits, **shared})


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
