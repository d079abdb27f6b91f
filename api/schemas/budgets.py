"""The body that raises the budget of a running task."""

from pydantic import Field

from domain.limits import Raise
from domain.task import Strict

FIELDS = {
    "ttl": "ttl_ms",
    "max_steps": "steps",
    "max_tokens": "tokens",
    "max_cost_usd": "cost_usd",
    "max_tool_calls": "tool_calls",
}


class RaiseTree(Strict):
    """Limits of the conversation."""

    max_steps: int | None = Field(default=None, ge=1, le=2**31 - 1)
    max_tokens: int | None = Field(default=None, ge=1, le=2**53)
    max_cost_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_tool_calls: int | None = Field(default=None, ge=1, le=2**31 - 1)
    max_sessions: int | None = Field(default=None, ge=1, le=2**31 - 1)


class RaiseBudget(Strict):
    """New limits, not additions, so that a repetition changes nothing."""

    ttl: int | None = Field(default=None, ge=1_000, description="milliseconds since its beginning")
    max_steps: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_cost_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_tool_calls: int | None = Field(default=None, ge=1, le=2**31 - 1)
    tree: RaiseTree | None = None

    def wanted(self) -> Raise:
        given = {kind: getattr(self, name) for name, kind in FIELDS.items()}
        tree = self.tree.model_dump(exclude_none=True) if self.tree else {}
        return Raise(**given, tree={name.removeprefix("max_"): limit for name, limit in tree.items()})
