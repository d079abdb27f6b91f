"""A session: one bounded execution of an agent. Its states, end reasons and limits; then what its loop and its
activities send each other about a step; then the effects of its tool calls."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from errand import models
from pydantic import BaseModel, Field

from domain.frozen import Frozen
from domain.ids import derive_id
from domain.json_object import JsonObject
from domain.pictures import FileBlock
from domain.policy.rules import Rule
from domain.redaction import redact


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


class Limits(models.Limits):
    """The most that a session may use; None means no such limit."""

    def raise_to(self, other: "Limits") -> "Limits":
        """The higher value of each limit that can be raised, because raises may arrive twice and in any order."""
        higher = {name: _higher(getattr(self, name), getattr(other, name)) for name in RAISABLE}
        return self.model_copy(update={**higher, "raised": self.raised or other.raised})


RAISABLE = ("ttl_ms", "steps", "tokens", "cost_usd", "tool_calls")


def _higher(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


class Usage(models.Usage):
    """The usage so far. A cost of None is unknown: some call used a model without a price."""

    def plus(self, other: "Usage", sign: int = 1) -> "Usage":
        names = [name for name in Usage.model_fields if name != "cost_usd"]
        counts = {name: getattr(self, name) + sign * getattr(other, name) for name in names}
        known = self.cost_usd is not None and other.cost_usd is not None
        cost = round((self.cost_usd or 0) + sign * (other.cost_usd or 0), 9) if known else None
        return Usage(**counts, cost_usd=cost)

    def minus(self, before: "Usage") -> "Usage":
        """The usage since an earlier point."""
        return self.plus(before, -1)


class Scope(StrEnum):
    """How far a stop or a limit reaches."""

    SESSION = "session"
    TREE = "tree"  # its subagents too, at any depth


class SessionRef(Frozen):
    """The session, its conversation and its tenant; every activity receives it."""

    tenant: str
    session_id: str
    conversation_id: str


class AgentRef(Frozen):
    """The exact definition that a session keeps for its whole life; `owner` is a tenant, or `*` for a shipped agent."""

    owner: str
    name: str
    version: int
    side: SideName = "a"  # whose prompt, tools and rules apply


# A tool call that continues elsewhere: its record in the store, and the condition for which the workflow waits.


LONGEST_POLL_MS = 3_600_000
SHORTEST_POLL_MS = 500
MOST_ASKED = 10  # forms at a time
MOST_ROUNDS = 50  # rounds of forms in one call


class RemoteForm(Frozen):
    """A question of the other side."""

    key: str  # the other side's key of the question
    message: str
    answer_schema: JsonObject


class RemoteCall(Frozen):
    """The handle of the call. A worker that finds it asks for the outcome instead of making the call again."""

    task_id: str | None = None  # of the other side
    state: str | None = None  # the other side's, if there is no task: to be sent back with the answers
    sent: bool = False  # if there is no task: the answers were sent, and the result is not known
    round: int = 0  # how often it has asked for input
    answered: list[str] = Field(default_factory=list)  # the keys of forms that were sent back
    forms: list[RemoteForm] = Field(default_factory=list)  # of this round; empty: it does not wait for answers
    # A question during a request cannot wait for people. It was cancelled, and the call is made again with the answers.
    cancelled: str | None = None  # the error with which the call ended then
    given: JsonObject = Field(default_factory=dict)  # people's answers so far, as the protocol has them


class PendingCall(Frozen):
    """The condition for which the workflow waits before it continues a call."""

    wait_ms: int = 0
    round: int = 0
    forms: int = 0  # how many answers it needs


def form_id(node: str, index: int, round: int, number: int) -> str:
    """The id of the input request for one form of a call."""
    return derive_id(node, "remote_form", index, round, number)


# Messages between the session's loop and its activities: ids, counters and short previews.


PREVIEW = 300  # characters of text that may be in the history beside a reference
LOOKED_AT = 20  # times the limit: no need to search a long text to its end for one line


def preview(text: str, limit: int = PREVIEW) -> str:
    """One line of limited length for the Temporal Web UI, without anything that looks like a key."""
    line = redact(" ".join(text[: limit * LOOKED_AT].split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


class Effect(StrEnum):
    """What a repetition of a tool call would do. It decides what happens after an interrupted attempt."""

    READ = "read"  # changes nothing: repeated freely
    IDEMPOTENT = "idempotent"  # the same call leaves the same world: repeated freely
    ONCE = "once"  # never silently repeated: the model sees "outcome unknown" for an interrupted attempt


class CallState(StrEnum):
    """How far a tool call is."""

    STARTED = "started"
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"  # it may have happened in full, in part or not at all
    CANCELLED = "cancelled"

    @property
    def for_model(self) -> "CallState":
        """The state that the model reads: of a call that began and did not report, nobody knows whether it happened."""
        return CallState.UNKNOWN if self is CallState.STARTED else self


class ToolCallResult(Frozen):
    """The result of a tool call; `text` is empty while the call runs."""

    index: int
    state: CallState
    text: str
    files: list[FileBlock] = Field(default_factory=list)  # that the model is shown with it


class Purpose(StrEnum):
    TURN = "turn"  # think and choose tools
    SUMMARY = "summary"  # the one last call before a limit ends the session; no tools offered
    COMPACT = "compact"  # replace a context that grew too long by a checkpoint


class StopReason(StrEnum):
    """Why a model's reply ends where it does."""

    ANSWERED = "answered"
    TOOL_CALLS = "tool_calls"
    CUT_OFF = "cut_off"  # by the length limit of one reply
    PAUSED = "paused"  # the model wants to be asked again
    CONTEXT_FULL = "context_full"
    DECLINED = "declined"
    INTERRUPTED = "interrupted"  # by a stop


class LineCall(BaseModel):
    """What each activity gets that works for one step of a line."""

    ref: SessionRef
    agent: AgentRef
    line: str = "main"
    above: list[AgentRef] = Field(default_factory=list)  # whose tools and rules bound an inline line's
    step: int


class ModelCall(LineCall):
    version: int  # of the session's row; rises with every write
    head: str | None
    model: str
    purpose: Purpose = Purpose.TURN
    take: list[str] = Field(default_factory=list)  # inbox messages that enter the context with this call
    opening: str | None = None  # "node/index" of the tool call whose prompt opens an inline line
    note: str | None = None  # a sentence of the platform for the model, for instance which limit was reached
    switched_from: str | None = None
    switch_reason: str | None = None
    # the model that is asked if this one cannot be reached; without one, it is tried until the deadline
    fallback: str | None = None
    deadline: datetime
    cut_at: datetime | None = None  # a reply that has not ended by then is stored as far as it has arrived
    usage: Usage  # spent before this call
    doing: str = ""  # what the step is about, in a few words
    speaker: str | None = None  # of an agent with two AI sides: the label of the side that is asked
    begins: bool = False  # the first call of its step: watchers learn that the step began
    previous: str | None = None  # the result of the line's previous step
    previous_step: int = 0
    failed_calls: int = 0  # of the session so far, like the next field
    denied_calls: int = 0


class ToolCall(BaseModel):
    """One tool call the model asked for; its arguments stay in the assistant node."""

    index: int
    name: str
    activity: str  # the registered activity that runs it
    effect: Effect
    timeout_s: float
    preview: str = ""
    ask: bool = False  # a rule wants a person's approval first
    refusal: str | None = None  # why it may not run
    bookkeeping: bool = False  # runs as a local activity
    talks: bool = False  # touches nothing: no approval withholds it
    asks: bool = False  # asks people; if refused, only people can help
    external: bool = False  # a tool that the caller brought
    denied: bool = False  # by a rule
    rule: Rule | None = None  # the one that denied it

    def refuse(self, why: str) -> "ToolCall":
        """The same call, answered with a refusal instead of being run."""
        changes = {"activity": "tool.refuse", "effect": Effect.READ, "refusal": why, "timeout_s": 10}
        return self.model_copy(update={**changes, "ask": False, "bookkeeping": True})


class RareFacts(BaseModel):
    """Fields that few replies have. They are left out of the history when they are empty."""

    misfit: str | None = None  # why the answer does not fit the agent's output schema
    # for a recorded answer: its original usage, which counts for the limits only, and whether the original continued
    recorded: Usage | None = None
    continues: bool = False
    # a handler ends the session with it, once the calls of the same reply have run
    ends: Literal["stop", "fail"] | None = None
    raised: Limits | None = None  # raised limits, read from the row because the signal that brings them may be late


class ModelReply(RareFacts):
    head: str
    stop_reason: StopReason
    calls: list[ToolCall] = Field(default_factory=list)
    usage: Usage
    full: bool = False  # the context nearly fills the model's window
    preview: str = ""
    interrupted: bool = False


class ResumePoint(BaseModel):
    """The position of a line, for a run that did not bring it there."""

    head: str
    step: int  # the session's number of the step that committed the head
    pending: ModelReply | None = None  # the reply at the head, if its tool calls may not have run


class TreeRequest(BaseModel):
    """Make the tree of a session's workspace, or keep what the session changed in it."""

    ref: SessionRef
    workspace_id: str


class ToolRequest(BaseModel):
    ref: SessionRef
    agent: AgentRef
    step: int
    node: str  # the assistant node that holds the call
    index: int
    name: str
    effect: Effect
    preview: str = ""
    workspace_id: str
    sandbox: SandboxMode | None = None
    above: list[AgentRef] = Field(default_factory=list)
    refusal: str | None = None
    approval: str | None = None  # the input request that allows this very call
    rule: Rule | None = None  # the rule that refuses it
    cancel: bool = False  # a call that continues elsewhere: it is stopped there


class ToolOutcome(Frozen):
    index: int
    name: str
    state: CallState = CallState.OK  # never `started`
    preview: str = ""
    doing: str | None = None  # the plan's current step, when the call changed the plan
    planned: bool = False  # the call submitted a plan
    replanned: bool = False  # its steps are others than before
    digest: str | None = None  # of the call and its result; None: repeating it does not count as a loop
    denied: bool = False  # by a rule or a person
    forbidden: bool = False  # by a rule
    pending: PendingCall | None = None  # it continues elsewhere: what to wait for before asking for it again
    spent: bool = False  # it was refused because the tree's budget of tool calls is spent
    used: Usage | None = None  # of a model that the tool asked


class BindingCall(Frozen):
    """The tool call with which a side ended its session. Its arguments are the session's payload. Without an index it
    is a handler's reply, whose text is the payload."""

    node: str
    index: int | None = None


class Finish(BaseModel):
    """The end of a session, which the one ending activity writes."""

    ref: SessionRef
    agent: AgentRef
    reason: Reason
    head: str | None
    step: int
    version: int
    usage: Usage
    error_type: str | None = None
    error: str | None = None
    by: str | None = None
    previous: str | None = None
    previous_step: int = 0
    spawned_by: str | None = None
    binding: BindingCall | None = None


class Finished(BaseModel):
    """The end as the session's row records it."""

    status: Status
    reason: Reason
    partial: bool
    head: str | None
    preview: str = ""


class SessionResult(Finished):
    """What the Session workflow returns; readable in the Temporal Web UI without a worker."""

    steps: int
    usage: Usage


class StopRequest(BaseModel):
    reason: Reason
    by: str
    note: str = ""
    grace_ms: int = 0  # time for running tools to finish; 0: they are stopped at once


# of a subagent for whose result nobody waits any more
PARENT_ENDED = StopRequest(reason=Reason.INTERRUPTED, by="its parent has ended")


class RecordedStop(StopRequest):
    """A stop as the session's row stores it."""

    at: datetime | None = None
    request_id: str | None = None  # the Idempotency-Key
    scope: Literal[Scope.TREE] | None = None  # its subagents start nothing new either
    actor: str | None = None  # of the audit log; None: `by`


# Effects: the changes that tool calls made in the world, as a session's ledger lists them, and a result's sources.


class EffectKind(StrEnum):
    FILE = "file"
    COMMAND = "command"
    REQUEST = "request"
    MESSAGE = "message"
    ARTIFACT = "artifact"
    SUBAGENT = "subagent"  # started, messaged or stopped; a dry run starts dry-run subagents
    CALL = "call"  # by a tool that does not declare another kind


class EffectState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"  # it was started and may have happened in full, in part or not at all
    WOULD_HAVE = "would_have"  # a dry run: described, not done


def state_of(state: CallState, *, dry: bool, ended: bool) -> EffectState:
    """The effect's state, derived from its call. Once the session has `ended`, no call is running any more."""
    if state is CallState.STARTED:
        return EffectState.UNKNOWN if ended else EffectState.RUNNING
    if state is CallState.OK:
        return EffectState.WOULD_HAVE if dry else EffectState.DONE
    if state is CallState.FAILED or dry:
        return EffectState.FAILED
    return EffectState.UNKNOWN  # lost, or stopped while it ran


def is_withheld(kind: EffectKind | None, effect: Effect) -> bool:
    """Whether a dry run describes such a call and does not run it."""
    return effect is not Effect.READ and kind not in (None, EffectKind.SUBAGENT)


def would_have(summary: str) -> str:
    return f"Dry run: this was not done. It would have been: {summary}. Continue as if it had succeeded."
