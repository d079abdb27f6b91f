"""Events, which watchers read. What a new one touches is in docs/contributing.md."""

from datetime import UTC, datetime
from enum import StrEnum
from operator import not_
from typing import ClassVar

from errand.models import Ending, Retry, Verdict
from pydantic import BaseModel, Field
from pydantic.alias_generators import to_snake

from domain.frozen import Frozen
from domain.json_object import JsonObject
from domain.pictures import FileBlock
from domain.plan import PlanStep
from domain.policy.rules import Rule
from domain.sessions.session import Reason, Scope, SessionRef, Status, Usage

# The fields that all events have, and an event as it is written to the log and read from it.


EVENTS: list[type["Event"]] = []  # every event that a session can emit, in the order of this file


class Event(Frozen):
    """The base of all events."""

    type: ClassVar[str]  # the name that watchers see: that of the class, `task_submitted` for TaskSubmitted
    terminal: ClassVar[bool] = False
    decisive: ClassVar[bool] = False  # listed in a result's short audit log

    def __init_subclass__(cls, *, abstract: bool = False, decisive: bool | None = None) -> None:
        super().__init_subclass__()
        cls.type = to_snake(cls.__name__)
        if decisive is not None:
            cls.decisive = decisive
        if not abstract:
            EVENTS.append(cls)


class CallAttempt(Frozen):
    """The attempt of a model or tool call that emits an event. Once a newer attempt has begun, the log refuses it."""

    call: str
    attempt: int


class EventRow(Frozen):
    """An event as the SQL functions take it; they give it its numbers."""

    tenant: str
    session_id: str
    conversation_id: str
    type: str
    terminal: bool
    at: datetime
    data: str  # JSON
    call: str | None = None  # as in CallAttempt; None: it is not part of a call
    attempt: int | None = None

    @classmethod
    def of(cls, ref: SessionRef, event: Event, at: datetime | None = None, by: CallAttempt | None = None) -> "EventRow":
        return cls(
            tenant=ref.tenant,
            session_id=ref.session_id,
            conversation_id=ref.conversation_id,
            type=event.type,
            terminal=event.terminal,
            at=at or datetime.now(UTC),
            data=event.model_dump_json(),
            call=by.call if by else None,
            attempt=by.attempt if by else None,
        )


class Recorded(BaseModel):
    """An event as the log stores it."""

    session_id: str
    seq: int
    conv_seq: int
    type: str
    at: datetime
    data: JsonObject = Field(default_factory=dict)


# The beginning and the end of a task. The terminal event is the last one of its session.


class TaskSubmitted(Event, decisive=True):
    agent: str
    agent_version: int
    title: str


class TaskStarted(Event):
    model: str
    prices: str | None = None  # the version of the price list; None: the model has no price, so its cost is unknown


class CancelRequested(Event, decisive=True):
    reason: Reason
    by: str
    note: str = ""
    mode: str = "hard"  # hard | graceful: running tools may finish first


class Ended(Event, Ending, abstract=True, decisive=True):
    """The last event of a session; nothing follows it."""

    terminal = True
    status: Status
    reason: Reason
    usage: Usage


class TaskCompleted(Ended):
    pass


class TaskFailed(Ended):
    pass


class TaskCancelled(Ended):
    pass


ENDED: dict[Status, type[Ended]] = {
    Status.COMPLETED: TaskCompleted,
    Status.FAILED: TaskFailed,
    Status.CANCELLED: TaskCancelled,
}


# Steps and plans.
#
# `step_started`, `progress`, `step_completed` and `replanning` belong to the task contract: names and fields are fixed.


class StepStarted(Event):
    step: int
    description: str


class StepCompleted(Event):
    step: int
    result: str


class Progress(Event):
    message: str


class HookFailed(Event):
    """A hook of the agent raised, took too long, or is not there; the session continues."""

    hook: str
    point: str
    step: int
    error: str


class PlanUpdated(Event):
    steps: list[PlanStep]


class Replanning(Event, decisive=True):
    reason: str


# The model's replies, call by call. Deltas are events too; the whole `message` or `thinking` follows them.


class TextDelta(Event, abstract=True):
    """A piece of a text while the model writes it. The function `is_delta` of the database lists the same types."""

    step: int
    text: str


class ThinkingDelta(TextDelta):
    pass


class MessageDelta(TextDelta):
    pass


class AttemptReset(Event):
    """The deltas of this step so far are void: a new attempt begins."""

    step: int
    attempt: int


class Thinking(Event):
    step: int
    text: str


class Message(Event):
    """The whole text of one model reply; it replaces the deltas of its step."""

    step: int
    text: str
    interrupted: bool = False
    # for an agent with two AI sides: the side that spoke, and its label
    side: str = Field(default="a", exclude_if=lambda side: side == "a")
    speaker: str | None = Field(default=None, exclude_if=lambda speaker: speaker is None)


class UsageUpdated(Event):
    model: str
    step: int
    call: Usage
    total: Usage
    calls: int = Field(default=0, exclude_if=lambda calls: calls == 0)  # how many tool calls of the reply run now
    # the endpoint did not count
    estimated: bool = Field(default=False, exclude_if=lambda estimated: not estimated)


class ModelRetry(Event, Retry):
    pass


class ModelSwitched(Event, decisive=True):
    step: int
    from_model: str
    to_model: str
    reason: str


class ContextCompacted(Event):
    step: int
    summary: str


class ContextLost(Event, decisive=True):
    """Earlier messages can no longer be read: the context starts empty, and people are notified."""

    head: str  # the last message that should have been read
    text: str = "Earlier messages could not be restored. The conversation starts again with your message."


# Tool calls and their artifacts. `tool_called` belongs to the task contract: its name and fields never change.


class ToolCalled(Event, decisive=True):
    tool: str
    args: str  # the call as one line
    arguments: JsonObject | None = Field(default=None, exclude_if=lambda value: value is None)  # None: too long


class ToolReturned(Event, decisive=True):
    tool: str
    state: str  # ok | failed | unknown | cancelled
    preview: str
    rule: Rule | None = Field(default=None, exclude_if=lambda value: value is None)  # the rule that refused the call
    files: list[FileBlock] = Field(default_factory=list, exclude_if=not_)  # that the model is shown with the result


class McpToolChanged(Event):
    """A tool of an MCP server is not what it was when the agent's version was made: it was not called."""

    tool: str
    server: str
    gone: bool  # the server does not list it any more


class TreePrepared(Event):
    """A repository is checked out at this commit."""

    folder: str | None = None  # of the workspace, if there are several
    commit: str
    branch: str
    seconds: float


class SetupFinished(Event):
    """The environment's setup has run; a setup that fails ends the task."""

    ok: bool
    reused: bool = False  # it was the maintenance: what an earlier task's setup made was taken over
    seconds: float
    log: str  # the end of its output


class ChosenBy(StrEnum):
    """Who chose among the attempts of a task."""

    CRITERIA = "criteria"  # the others did not meet them, or made the same change
    JUDGE = "judge"
    PERSON = "person"
    SIZE = "size"  # neither could choose, and it is the smallest change


class AttemptChosen(Event, decisive=True):
    """The task takes over the answer and the files of one of its attempts."""

    number: int
    child_session_id: str
    chosen_by: ChosenBy
    why: str


class WorkspaceNotKept(Event):
    """Files that this worker could not save because they exceed a limit. Another worker would see their former version,
    or none."""

    count: int
    files: dict[str, str]  # the first ones: path -> reason


class ArtifactSaved(Event, decisive=True):
    name: str
    artifact_type: str
    file_id: str
    size: int
    url: str | None = Field(default=None, exclude_if=lambda value: value is None)  # set if the artifact is an address


# Subagents, the mailbox, and messages that enter a running session.


class SubagentStarted(Event, decisive=True):
    child_session_id: str
    name: str
    agent: str
    description: str = ""


class SubagentEnded(Event, decisive=True):
    child_session_id: str
    name: str
    status: Status


class MailboxUpdated(Event):
    """The database fills in the count, in the transaction that changes it."""

    pending_count: int = 0


class MessageReceived(Event, decisive=True):
    """A message entered the running session. A caller sent it, or a subagent that reported."""

    kind: str
    author: str
    preview: str


class VariablesRequired(Event):
    """A subagent waits for values of its variables. It begins once they are set."""

    request_id: str
    thread_id: str
    agent: str
    name: str
    missing: list[str]


class HandedOver(Event, decisive=True):
    """Another agent has taken over the thread and continues with its history."""

    from_agent: str
    to_agent: str
    step: int


# Input requests: opened, answered, expired, and the reminders in between.


class InputRequired(Event, decisive=True):
    """The session waits for a person."""

    request_id: str
    kind: str
    question: str
    options: list[str] = Field(default_factory=list, exclude_if=lambda options: not options)  # to choose from
    deadline: datetime


class InputReceived(Event, decisive=True):
    request_id: str
    kind: str
    by: str


class InputExpired(Event, decisive=True):
    request_id: str
    kind: str


class InputReminder(InputRequired, decisive=False):
    """Nobody has answered yet: the same subscriptions are notified again."""


class InputEscalated(InputRequired, decisive=False):
    """Nobody has answered yet: the subscription named `to` is notified, whatever events it otherwise asks for."""

    to: str


# Budgets that run low or are spent, anomalies, and verdicts on acceptance criteria.


class BudgetLow(Event):
    """Emitted once for each budget of a session, and once for each budget of a tree."""

    scope: Scope
    budget: str  # steps | tokens | cost_usd | tool_calls | ttl
    limit: float
    left: float


class BudgetRaised(Event):
    """A person raised a budget of a running session or of its tree; one event for each budget."""

    scope: Scope
    budget: str
    before: float
    limit: float
    by: str


class SubagentBudgetExceeded(Event, decisive=True):
    """Emitted in the parent's stream, before the outcome is delivered."""

    child_session_id: str
    reason: Reason
    error: str | None = None


class Anomaly(Event):
    kind: str  # error_rate | spend_rate | denied_calls
    value: float
    threshold: float


class AcceptanceChecked(Event, decisive=True):
    round: int
    passed: bool
    verdicts: list[Verdict]
