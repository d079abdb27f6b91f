"""Messages between the session's loop and its activities: ids, counters and short previews."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from domain.policy.rules import Rule
from domain.redaction import redact
from domain.sessions.remote_call import PendingCall
from domain.sessions.session import AgentRef, Limits, Reason, SandboxMode, Scope, SessionRef, Status, Usage

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


class ToolCallResult(BaseModel):
    """The result of a tool call; `text` is empty while the call runs."""

    model_config = ConfigDict(frozen=True)

    index: int
    state: CallState
    text: str


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


def is_empty(value: object) -> bool:
    """A field that says nothing is not written: each step would carry a dozen of them through the history."""
    return value is None or value is False or value == [] or value == 0


class ModelCall(BaseModel):
    ref: SessionRef
    agent: AgentRef
    line: str = "main"
    # whose tools and rules bound an inline line's
    above: list[AgentRef] = Field(default_factory=list, exclude_if=is_empty)
    step: int
    version: int  # of the session's row; rises with every write
    head: str | None
    model: str
    purpose: Purpose = Purpose.TURN
    # inbox messages that enter the context with this call
    take: list[str] = Field(default_factory=list, exclude_if=is_empty)
    # "node/index" of the tool call whose prompt opens an inline line
    opening: str | None = Field(default=None, exclude_if=is_empty)
    # a sentence of the platform for the model, for instance which limit was reached
    note: str | None = Field(default=None, exclude_if=is_empty)
    switched_from: str | None = Field(default=None, exclude_if=is_empty)
    switch_reason: str | None = Field(default=None, exclude_if=is_empty)
    last_model: bool = True  # no fallback is left: retry until the deadline
    deadline: datetime
    cut_at: datetime | None = None  # a reply that has not ended by then is stored as far as it has arrived
    usage: Usage  # spent before this call
    doing: str = ""  # what the step is about, in a few words
    # of an agent with two AI sides: the label of the side that is asked
    speaker: str | None = Field(default=None, exclude_if=is_empty)
    # the first call of its step: watchers learn that the step began
    begins: bool = Field(default=False, exclude_if=is_empty)
    # the result of the line's previous step
    previous: str | None = Field(default=None, exclude_if=is_empty)
    previous_step: int = Field(default=0, exclude_if=is_empty)
    # of the session so far, like the next field
    failed_calls: int = Field(default=0, exclude_if=is_empty)
    denied_calls: int = Field(default=0, exclude_if=is_empty)


class ToolCall(BaseModel):
    """One tool call the model asked for; its arguments stay in the assistant node."""

    index: int
    name: str
    activity: str  # the registered activity that runs it
    effect: Effect
    timeout_s: float
    preview: str = ""
    ask: bool = Field(default=False, exclude_if=is_empty)  # a rule wants a person's approval first
    refusal: str | None = Field(default=None, exclude_if=is_empty)  # why it may not run
    bookkeeping: bool = Field(default=False, exclude_if=lambda value: not value)  # runs as a local activity
    talks: bool = Field(default=False, exclude_if=lambda value: not value)  # touches nothing: no approval withholds it
    # asks people; if refused, only people can help
    asks: bool = Field(default=False, exclude_if=lambda value: not value)
    external: bool = Field(default=False, exclude_if=lambda value: not value)  # a tool that the caller brought
    denied: bool = Field(default=False, exclude_if=lambda value: not value)  # by a rule
    rule: Rule | None = Field(default=None, exclude_if=lambda value: value is None)  # the one that denied it

    def refuse(self, why: str) -> "ToolCall":
        """The same call, answered with a refusal instead of being run."""
        changes = {"activity": "tool.refuse", "effect": Effect.READ, "refusal": why, "timeout_s": 10}
        return self.model_copy(update={**changes, "ask": False, "bookkeeping": True})


class RareFacts(BaseModel):
    """Fields that few replies have. They are left out of the history when they are empty."""

    # why the answer does not fit the agent's output schema
    misfit: str | None = Field(default=None, exclude_if=lambda value: value is None)
    # for a recorded answer: its original usage, which counts for the limits only, and whether the original continued
    recorded: Usage | None = Field(default=None, exclude_if=lambda value: value is None)
    continues: bool = Field(default=False, exclude_if=lambda value: not value)
    # a handler ends the session with it, once the calls of the same reply have run
    ends: Literal["stop", "fail"] | None = Field(default=None, exclude_if=lambda value: value is None)
    # raised limits, read from the row because the signal that brings them may be late
    raised: Limits | None = Field(default=None, exclude_if=lambda value: value is None)


class ModelReply(RareFacts):
    head: str
    stop_reason: StopReason
    calls: list[ToolCall] = Field(default_factory=list)
    usage: Usage
    full: bool = Field(default=False, exclude_if=is_empty)  # the context nearly fills the model's window
    preview: str = ""
    interrupted: bool = Field(default=False, exclude_if=is_empty)


class ResumePoint(BaseModel):
    """The position of a line, for a run that did not bring it there."""

    head: str
    step: int  # the session's number of the step that committed the head
    pending: ModelReply | None = None  # the reply at the head, if its tool calls may not have run


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
    sandbox: SandboxMode | None = Field(default=None, exclude_if=is_empty)
    above: list[AgentRef] = Field(default_factory=list, exclude_if=is_empty)
    refusal: str | None = Field(default=None, exclude_if=is_empty)
    # the input request that allows this very call
    approval: str | None = Field(default=None, exclude_if=is_empty)
    rule: Rule | None = Field(default=None, exclude_if=is_empty)  # the rule that refuses it
    # a call that continues elsewhere: it is stopped there
    cancel: bool = Field(default=False, exclude_if=is_empty)


class ToolOutcome(BaseModel):
    model_config = ConfigDict(frozen=True)

    index: int
    name: str
    state: CallState = CallState.OK  # never `started`
    preview: str = ""
    # the plan's current step, when the call changed the plan
    doing: str | None = Field(default=None, exclude_if=is_empty)
    planned: bool = Field(default=False, exclude_if=lambda value: not value)  # the call submitted a plan
    replanned: bool = Field(default=False, exclude_if=lambda value: not value)  # its steps are others than before
    digest: str | None = None  # of the call and its result; None: repeating it does not count as a loop
    denied: bool = Field(default=False, exclude_if=lambda value: not value)  # by a rule or a person
    forbidden: bool = Field(default=False, exclude_if=lambda value: not value)  # by a rule
    # it continues elsewhere: what to wait for before asking for it again
    pending: PendingCall | None = Field(default=None, exclude_if=lambda value: value is None)
    # it was refused because the tree's budget of tool calls is spent
    spent: bool = Field(default=False, exclude_if=lambda value: not value)


class BindingCall(BaseModel):
    """The tool call with which a side ended its session. Its arguments are the session's payload. Without an index it
    is a handler's reply, whose text is the payload."""

    model_config = ConfigDict(frozen=True)

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
    binding: BindingCall | None = Field(default=None, exclude_if=lambda call: call is None)


class Finished(BaseModel):
    """The end as the session's row records it."""

    status: Status
    reason: Reason
    partial: bool
    head: str | None
    preview: str = ""


class StopRequest(BaseModel):
    reason: Reason
    by: str
    note: str = ""
    grace_ms: int = 0  # time for running tools to finish; 0: they are stopped at once


class RecordedStop(StopRequest):
    """A stop as the session's row stores it."""

    at: datetime | None = None
    request_id: str | None = None  # the Idempotency-Key
    scope: Literal[Scope.TREE] | None = None  # its subagents start nothing new either
    actor: str | None = None  # of the audit log; None: `by`
