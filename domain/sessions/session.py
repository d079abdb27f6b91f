"""A session: one bounded execution of an agent, its states, its end reasons and what it may spend."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from domain.agents.side import SideName
from domain.agents.sides import Sides, other_side


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

# a budget was spent: the parent of a subagent that ends so is told
BUDGET_REASONS = frozenset(
    {Reason.STEP_LIMIT, Reason.TOKEN_BUDGET, Reason.COST_BUDGET, Reason.TOOL_LIMIT, Reason.TREE_BUDGET}
)
LIMIT_REASONS = BUDGET_REASONS | {Reason.TURN_LIMIT, Reason.TTL, Reason.LOOP_DETECTED, Reason.POLICY_DENIED}


class SandboxMode(StrEnum):
    """Where commands run; a task may choose, else its agent's definition decides."""

    ISOLATED = "isolated"  # own files and processes, no network
    NETWORKED = "networked"  # the same with network access


class Limits(BaseModel):
    """What a session may use at the most; None means without that limit."""

    model_config = ConfigDict(frozen=True)

    ttl_ms: int = 3_600_000
    steps: int = 50
    tokens: int | None = None
    cost_usd: float | None = None
    tool_calls: int | None = None
    repeats_warning: int = 4  # so often the agent may repeat itself before it is warned
    repeats: int = 8  # and before it is stopped
    denied: int | None = None  # so many calls rules may deny before it is stopped


class Usage(BaseModel):
    """What was used so far. A cost of None means unknown: some call used a model without a price."""

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
        """What was used since."""
        names = [name for name in Usage.model_fields if name != "cost_usd"]
        counts = {name: getattr(self, name) - getattr(before, name) for name in names}
        known = self.cost_usd is not None and before.cost_usd is not None
        return Usage(**counts, cost_usd=round((self.cost_usd or 0) - (before.cost_usd or 0), 9) if known else None)


class SessionRef(BaseModel):
    """Which session, in which conversation, of which tenant: what every activity is told."""

    model_config = ConfigDict(frozen=True)

    tenant: str
    session_id: str
    conversation_id: str


class AgentRef(BaseModel):
    """The exact definition a session keeps for its whole life; `owner` is a tenant, or `*` for a shipped agent."""

    model_config = ConfigDict(frozen=True)

    owner: str
    name: str
    version: int
    side: SideName = Field(default="a", exclude_if=lambda side: side == "a")  # whose prompt, tools and rules apply


class Line(BaseModel):
    """One strand of reasoning: a context that grows and the agent that reads it. A session has one, and one more for
    each inline delegate while it works."""

    path: str = "main"
    agent: AgentRef
    models: list[str]  # the model, then its fallbacks in order
    model_index: int = 0
    head: str | None = None
    opening: str | None = None  # "node/index" of the tool call whose prompt opens an inline line
    step: int = 0  # the session's number of the line's current step
    steps: int = Field(default=0, exclude_if=lambda steps: not steps)  # of a side: how many it has taken
    doing: str = ""  # what the current step is about
    above: list[AgentRef] = Field(
        default_factory=list
    )  # of an inline line: the agents it works for, the session's first
    note: str | None = None  # a word of the platform for the next call
    previous: str | None = None  # what the last step came to, until a watcher was told
    previous_step: int = 0
    misfits: int = 0  # answers that did not fit the output schema
    trail: list[str] = Field(default_factory=list)  # digests of its latest steps, by which repetition is noticed

    @property
    def is_main(self) -> bool:
        return self.path == "main"

    @property
    def model(self) -> str:
        return self.models[self.model_index]

    @property
    def last_model(self) -> bool:
        return self.model_index + 1 >= len(self.models)


class StartedChild(BaseModel):
    """A subagent that a session has started, as its details in the Web UI name it."""

    id: str
    title: str


class SessionState(BaseModel):
    """All of a Session that must survive continue-as-new."""

    line: Line
    step: int = 0
    version: int = 0
    usage: Usage = Field(default_factory=Usage)
    recorded: Usage = Field(default_factory=Usage)  # what recorded answers used when they were given
    inbox: list[str] = Field(default_factory=list)  # message ids that wait for the next model call
    seen_messages: list[str] = Field(default_factory=list)  # ids, so that one sent again counts once
    waking: list[str] = Field(default_factory=list)  # children whose outcome is delivered without being asked for
    ended: list[str] = Field(default_factory=list)  # children known to have ended
    children: list[StartedChild] = Field(default_factory=list)  # the latest
    children_started: int = 0
    answered: list[str] = Field(default_factory=list)  # input requests that have an answer
    plan_approved: bool = False
    failed_calls: int = 0
    denied_calls: int = 0
    forbidden_calls: int = 0  # those of them that a rule denied
    acceptance_round: int = 0  # how often the acceptance criteria were checked
    turns: int = Field(default=0, exclude_if=lambda turns: not turns)  # completed turns of the two sides
    # of an agent with two AI sides: the line of the side that waits for its turn. Both share one message tree.
    waiting_line: Line | None = Field(default=None, exclude_if=lambda line: line is None)
    # after a handoff: the sides of the agent that took over, and whether any of it has happened
    sides: Sides | None = Field(default=None, exclude_if=lambda sides: sides is None)
    handed_over: bool = Field(default=False, exclude_if=lambda value: not value)

    def switch_sides(self) -> None:
        """The other side continues from where this one stopped."""
        assert self.waiting_line is not None
        spoke, self.line = self.line, self.waiting_line
        self.line.head, self.line.step = spoke.head, spoke.step
        self.line.previous, self.line.previous_step = spoke.previous, spoke.previous_step
        self.waiting_line = spoke
        self.turns += 1


class SessionInput(BaseModel):
    """All that a Session workflow starts with: references and limits, never words."""

    ref: SessionRef
    agent: AgentRef
    models: list[str]  # the model, then its fallbacks in order
    limits: Limits
    deadline: datetime
    workspace_id: str
    inbox: list[str] = Field(default_factory=list)  # message ids that open the session
    head: str | None = None  # the message tree's node to continue from
    title: str = ""
    trigger: str = "api"
    sandbox: SandboxMode | None = None
    approval_required: bool = False  # nothing with an effect runs before the plan is approved
    ask_variables: bool = False  # values are missing that the agent cannot begin without
    acceptance: bool = False  # criteria are checked before it may complete
    await_children: bool = True  # with children still to report, the session is not done
    parent_session_id: str | None = None  # who spawned it
    sides: Sides | None = Field(default=None, exclude_if=lambda sides: sides is None)  # None: a plain agent
    carried: SessionState | None = None

    def first_state(self) -> SessionState:
        if self.sides is None:
            line = Line(agent=self.agent, models=self.models, head=self.head)
            return SessionState(line=line, inbox=list(self.inbox))
        first = self.sides.first
        waiting = self._side_line(other_side(first)) if self.sides.dual else None
        return SessionState(line=self._side_line(first), waiting_line=waiting, inbox=list(self.inbox))

    def _side_line(self, name: SideName) -> Line:
        assert self.sides is not None
        agent = self.agent.model_copy(update={"side": name})
        return Line(agent=agent, models=self.sides.models[name], head=self.head)


class SessionResult(BaseModel):
    """What the Session workflow returns; readable in the Temporal Web UI without a worker."""

    status: Status
    reason: Reason
    partial: bool
    steps: int
    usage: Usage
    head: str | None
    preview: str = ""
