"""Budgets: what is left of a session's limits and of its tree's, and what a model call may reserve."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from domain.amounts import counted
from domain.sessions.session import Limits, Usage

LEAST_REPLY = 256  # tokens; a budget with less room than this counts as spent
TTL = "ttl"
KINDS = {"steps": "steps", "tokens": "tokens", "cost_usd": "money", "tool_calls": "tool calls", "sessions": "sessions"}


class TreeBudget(BaseModel):
    """The limits of all sessions of a conversation together, and their usage. None: no such limit."""

    model_config = ConfigDict(extra="ignore")

    deadline: datetime | None = None
    max_steps: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_tool_calls: int | None = None
    max_sessions: int | None = None
    steps: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    tool_calls: int = 0
    sessions: int = 0

    def shares(self) -> "list[Share]":
        figures = [(kind, getattr(self, f"max_{kind}"), getattr(self, kind)) for kind in KINDS]
        return [Share(kind=kind, limit=limit, used=used) for kind, limit, used in figures if limit is not None]

    def spent(self, now: datetime) -> str | None:
        """The budget that is too small for a further session, if any. Tool calls do not count: a session can start
        without."""
        if self.deadline is not None and self.deadline <= now:
            return "time"
        return next((KINDS[one.kind] for one in self.shares() if one.kind != "tool_calls" and one.left <= 0), None)


class Share(BaseModel):
    """One limit and what was used of it."""

    model_config = ConfigDict(frozen=True)

    kind: str
    limit: float
    used: float

    @property
    def left(self) -> float:
        return max(0.0, self.limit - self.used)

    def low(self, percent: int) -> bool:
        return self.left <= self.limit * percent / 100


def time_of(limits: Limits, created_at: datetime | None, deadline: datetime, now: datetime) -> Share:
    """The time budget of one session: its own TTL, or less if its tree had less left when it was created."""
    given = (deadline - created_at).total_seconds() * 1_000 if created_at else limits.ttl_ms
    span = (
        limits.ttl_ms if given > limits.ttl_ms - 1_000 else round(given)
    )  # the row is written a moment after the deadline is computed
    left = max(0.0, (deadline - now).total_seconds() * 1_000)
    return Share(kind=TTL, limit=span, used=max(0.0, span - left))


def shares(limits: Limits, steps: int, usage: Usage, time: Share | None = None) -> list[Share]:
    """The budgets of one session. An unknown cost counts as the whole budget."""
    cost = usage.cost_usd if usage.cost_usd is not None else limits.cost_usd
    figures = (
        ("steps", limits.steps, steps),
        ("tokens", limits.tokens, usage.tokens),
        ("cost_usd", limits.cost_usd, cost),
        ("tool_calls", limits.tool_calls, usage.tool_invocations),
    )
    found = [Share(kind=kind, limit=limit, used=used or 0) for kind, limit, used in figures if limit is not None]
    return found if time is None else [*found, time]


class BudgetChange(BaseModel):
    """One limit that was raised."""

    budget: str
    before: int | float
    limit: int | float


class Raise(BaseModel):
    """New limits of a running session, and of its tree by kind. None: unchanged."""

    ttl_ms: int | None = None
    steps: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    tool_calls: int | None = None
    tree: dict[str, int | float] = Field(default_factory=dict)

    def limits(self, before: Limits) -> Limits:
        if not self.changes(before):
            return before
        given = self.model_dump(exclude={"tree"}, exclude_none=True)
        return before.raised_to(before.model_copy(update={**given, "raised": True}))

    def changes(self, before: Limits) -> list[BudgetChange]:
        return _higher(self.model_dump(exclude={"tree"}), before.model_dump())

    def tree_changes(self, before: TreeBudget) -> list[BudgetChange]:
        return _higher(self.tree, {share.kind: share.limit for share in before.shares()})


def _higher(wanted: Mapping[str, int | float | None], before: Mapping[str, Any]) -> list[BudgetChange]:
    return [
        BudgetChange(budget=TTL if kind == "ttl_ms" else kind, before=before[kind], limit=limit)
        for kind, limit in wanted.items()
        if limit is not None and before.get(kind) is not None and limit > before[kind]
    ]


def budget_note(own: Sequence[Share], tree: Sequence[Share]) -> str:
    """The note about remaining budget that the model gets before each step."""
    text = "Left to this session: " + ", ".join(map(_left, own)) + "."
    if tree:
        text += " Left to you and all subagents together: " + ", ".join(map(_left, tree)) + "."
    return f"<budget>{text}</budget>"


def _left(share: Share) -> str:
    left = figure(share.kind, share.left)
    if share.kind in ("cost_usd", TTL):
        return left
    return counted(round(share.left), KINDS[share.kind].removesuffix("s"))


def figure(kind: str, value: float) -> str:
    """An amount of one budget, formatted for people and models."""
    if kind == "cost_usd":
        return f"${value:.4f}"
    if kind == TTL:
        return f"{value / 60_000:.1f} minutes" if value >= 60_000 else counted(round(value / 1_000), "second")
    return f"{value:,.0f}"


class CallEstimate(BaseModel):
    """The most that a model call may use. A cost of None means unknown."""

    input_tokens: int
    output_tokens: int
    input_usd: float | None = 0.0
    output_usd: float | None = 0.0  # cost of all output tokens


class Reserved(BaseModel):
    """The amounts that other running calls of the tree have reserved."""

    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0


class Grant(BaseModel):
    """The granted length of the reply. Or the reason for a refusal: a budget is spent, or others hold it and may
    release some."""

    output_tokens: int = 0
    wait: bool = False
    spent: str | None = None  # one of KINDS

    @property
    def given(self) -> bool:
        return self.output_tokens > 0


def grant(budget: TreeBudget, held: Reserved, wanted: CallEstimate) -> Grant:
    """Grant the whole estimate, or, once nobody else holds a reservation, as much as is left."""
    free = _room(budget, Reserved(), wanted)
    for kind, tokens in free.items():
        if tokens < min(LEAST_REPLY, wanted.output_tokens):
            return Grant(spent=KINDS[kind])
    now = min(_room(budget, held, wanted).values(), default=wanted.output_tokens)
    if now >= wanted.output_tokens:
        return Grant(output_tokens=wanted.output_tokens)
    return Grant(wait=True) if held.calls else Grant(output_tokens=now)


def _room(budget: TreeBudget, held: Reserved, wanted: CallEstimate) -> dict[str, int]:
    """How many reply tokens each limit allows."""
    room: dict[str, int] = {}
    if budget.max_steps is not None:
        room["steps"] = wanted.output_tokens if budget.steps + held.calls < budget.max_steps else 0
    if budget.max_tokens is not None:
        room["tokens"] = max(0, budget.max_tokens - budget.tokens - held.tokens - wanted.input_tokens)
    if budget.max_cost_usd is not None:
        left = budget.max_cost_usd - budget.cost_usd - held.cost_usd - (wanted.input_usd or 0)
        known = wanted.input_usd is not None and wanted.output_usd is not None
        share = 1.0 if not wanted.output_usd else left / wanted.output_usd
        room["cost_usd"] = max(0, int(wanted.output_tokens * min(1.0, share))) if known and left > 0 else 0
    return room
