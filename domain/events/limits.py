"""Budgets that run low or are spent, anomalies, and verdicts on acceptance criteria."""

from domain.events.base import Event
from domain.sessions.acceptance import CriterionVerdict
from domain.sessions.session import Reason, Scope


class BudgetLow(Event):
    """Emitted once for each budget of a session, and once for each budget of a tree."""

    type = "budget_low"
    scope: Scope
    budget: str  # steps | tokens | cost_usd | tool_calls | ttl | sessions
    limit: float
    left: float


class BudgetRaised(Event):
    """A person raised a budget of a running session or of its tree; one event for each budget."""

    type = "budget_raised"
    scope: Scope
    budget: str
    before: float
    limit: float
    by: str


class SubagentBudgetExceeded(Event):
    """Emitted in the parent's stream, before the outcome is delivered."""

    type = "subagent_budget_exceeded"
    decisive = True
    child_session_id: str
    reason: Reason
    error: str | None = None


class Anomaly(Event):
    type = "anomaly"
    kind: str  # error_rate | spend_rate | denied_calls
    value: float
    threshold: float


class AcceptanceChecked(Event):
    type = "acceptance_checked"
    decisive = True
    round: int
    passed: bool
    verdicts: list[CriterionVerdict]
