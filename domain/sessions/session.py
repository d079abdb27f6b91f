"""A session: one bounded execution of an agent. Its states, its end reasons and its limits."""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Status(StrEnum):
    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


class Reason(StrEnum):
    """Why a session ended; the status follows from it."""

    GOAL_REACHED = "goal_reached"
    ERROR = "error"
    TTL = "ttl"
    STEP_LIMIT = "step_limit"
    TURN_LIMIT = "turn_limit"
    TOKEN_BUDGET = "token_budget"
    COST_BUDGET = "cost_budget"
    TOOL_LIMIT = "tool_limit"
    TREE_BUDGET = "tree_budget"
    LOOP_DETECTED = "loop_detected"
    INPUT_TIMEOUT = "input_timeout"
    NEEDS_INPUT = "needs_input"
    ACCEPTANCE_FAILED = "acceptance_failed"
    CONSTRAINT_VIOLATED = "constraint_violated"
    CALLER_CANCEL = "caller_cancel"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    POLICY_DENIED = "policy_denied"
    LOST = "lost"

    @property
    def status(self) -> Status:
        if self is Reason.GOAL_REACHED:
            return Status.COMPLETED
        return Status.CANCELLED if self in _CANCELS else Status.FAILED


_CANCELS = frozenset({Reason.CALLER_CANCEL, Reason.INTERRUPTED, Reason.TERMINATED, Reason.INPUT_TIMEOUT})

# A budget was spent. The parent of a subagent that ends for one of these reasons is notified.
BUDGET_REASONS = frozenset(
    {Reason.STEP_LIMIT, Reason.TOKEN_BUDGET, Reason.COST_BUDGET, Reason.TOOL_LIMIT, Reason.TREE_BUDGET}
)
LIMIT_REASONS = BUDGET_REASONS | {Reason.TURN_LIMIT, Reason.TTL, Reason.LOOP_DETECTED, Reason.POLICY_DENIED}


class DeliveryMode(StrEnum):
    HOLD = "hold"  # waits in the mailbox until it is fired
    WAKE = "wake"  # reaches the spawner at its next step, or starts it again
    EXPLICIT = "explicit"  # only what the subagent sends is delivered
    REPORT = "report"  # what the subagent sends, and its failure, which wakes the spawner


SideName = Literal["a", "b"]  # of an agent
SIDES: tuple[SideName, SideName] = ("a", "b")


class SandboxMode(StrEnum):
    """Where commands run; a task may choose, else its agent's definition decides."""

    ISOLATED = "isolated"  # own files and processes, no network
    NETWORKED = "networked"  # the same with network access


class Limits(BaseModel):
    """The most that a session may use; None means no such limit."""

    model_config = ConfigDict(frozen=True)

    ttl_ms: int = 3_600_000
    steps: int = 50
    tokens: int | None = None
    cost_usd: float | None = None
    tool_calls: int | None = None
    repeats_warning: int = 4  # repetitions before the agent is warned
    repeats: int = 8  # repetitions before it is stopped
    denied: int | None = None  # calls that rules denied before it is stopped
    # whether limits were raised while the session ran; left out of the history if not
    raised: bool = Field(default=False, exclude_if=lambda value: not value)

    def raised_to(self, other: "Limits") -> "Limits":
        """The higher value of each limit that can be raised, because raises may arrive twice and in any order."""
        higher = {name: _higher(getattr(self, name), getattr(other, name)) for name in RAISABLE}
        return self.model_copy(update={**higher, "raised": self.raised or other.raised})


RAISABLE = ("ttl_ms", "steps", "tokens", "cost_usd", "tool_calls")


def _higher(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


class Usage(BaseModel):
    """The usage so far. A cost of None is unknown: some call used a model without a price."""

    llm_calls: int = 0
    tool_invocations: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = 0.0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    def plus(self, other: "Usage") -> "Usage":
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            llm_calls=self.llm_calls + other.llm_calls,
            tool_invocations=self.tool_invocations + other.tool_invocations,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cost_usd=round((self.cost_usd or 0) + (other.cost_usd or 0), 9) if known else None,
        )

    def minus(self, before: "Usage") -> "Usage":
        """The usage since an earlier point."""
        names = [name for name in Usage.model_fields if name != "cost_usd"]
        counts = {name: getattr(self, name) - getattr(before, name) for name in names}
        known = self.cost_usd is not None and before.cost_usd is not None
        return Usage(**counts, cost_usd=round((self.cost_usd or 0) - (before.cost_usd or 0), 9) if known else None)


class Scope(StrEnum):
    """How far a stop or a limit reaches."""

    SESSION = "session"
    TREE = "tree"  # its subagents too, at any depth


class SessionRef(BaseModel):
    """The session, its conversation and its tenant; every activity receives it."""

    model_config = ConfigDict(frozen=True)

    tenant: str
    session_id: str
    conversation_id: str


class AgentRef(BaseModel):
    """The exact definition that a session keeps for its whole life; `owner` is a tenant, or `*` for a shipped agent."""

    model_config = ConfigDict(frozen=True)

    owner: str
    name: str
    version: int
    side: SideName = Field(default="a", exclude_if=lambda side: side == "a")  # whose prompt, tools and rules apply


class SessionResult(BaseModel):
    """What the Session workflow returns; readable in the Temporal Web UI without a worker."""

    status: Status
    reason: Reason
    partial: bool
    steps: int
    usage: Usage
    head: str | None
    preview: str = ""
