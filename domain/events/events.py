"""What a watcher sees. Adding an event is one class here and the line that publishes it.

The five events of the task contract (step_started, tool_called, progress, step_completed, replanning) keep exactly
these names and fields. Deltas are events too: the whole `message` follows them.
"""

from datetime import datetime
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from domain.plan import PlanStep
from domain.policy.rules import Rule
from domain.sessions.session import Reason, Status, Usage


class Event(BaseModel):
    """The base of all events; `type` is the event's public name."""

    model_config = ConfigDict(frozen=True)

    type: ClassVar[str]
    terminal: ClassVar[bool] = False

    def data(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class TaskSubmitted(Event):
    type = "task_submitted"
    agent: str
    agent_version: int
    title: str


class TaskStarted(Event):
    type = "task_started"
    model: str


class StepStarted(Event):
    type = "step_started"
    step: int
    description: str


class StepCompleted(Event):
    type = "step_completed"
    step: int
    result: str


class ToolCalled(Event):
    type = "tool_called"
    tool: str
    args: str


class ToolReturned(Event):
    type = "tool_returned"
    tool: str
    state: str  # ok | failed | unknown | cancelled
    preview: str
    rule: Rule | None = Field(default=None, exclude_if=lambda value: value is None)  # that refused it


class Progress(Event):
    type = "progress"
    message: str


class PlanUpdated(Event):
    type = "plan_updated"
    steps: list[PlanStep]


class Replanning(Event):
    type = "replanning"
    reason: str


class ThinkingDelta(Event):
    type = "thinking_delta"
    step: int
    text: str


class MessageDelta(Event):
    type = "message_delta"
    step: int
    text: str


class AttemptReset(Event):
    """The deltas of this step so far are void: a new attempt begins."""

    type = "attempt_reset"
    step: int
    attempt: int


class Thinking(Event):
    type = "thinking"
    step: int
    text: str


class Message(Event):
    """The whole text of one model reply; it replaces the deltas of its step."""

    type = "message"
    step: int
    text: str
    interrupted: bool = False


class UsageUpdated(Event):
    type = "usage_updated"
    model: str
    step: int
    call: Usage
    total: Usage


class ModelRetry(Event):
    type = "model_retry"
    step: int
    attempt: int
    model: str
    reason: str
    next_at: datetime


class ModelSwitched(Event):
    type = "model_switched"
    step: int
    from_model: str
    to_model: str
    reason: str


class ContextCompacted(Event):
    type = "context_compacted"
    step: int
    summary: str


class ArtifactSaved(Event):
    type = "artifact_saved"
    name: str
    artifact_type: str
    file_id: str
    size: int


class SubagentStarted(Event):
    type = "subagent_started"
    child_session_id: str
    name: str
    agent: str
    description: str = ""


class SubagentEnded(Event):
    type = "subagent_ended"
    child_session_id: str
    name: str
    status: Status


class MailboxUpdated(Event):
    """The count is filled in by the transaction that changes it."""

    type = "mailbox_updated"
    pending_count: int = 0


class MessageReceived(Event):
    """Words from outside entered the session: of a caller, or of a subagent that reported."""

    type = "message_received"
    kind: str
    author: str
    preview: str


class CancelRequested(Event):
    type = "cancel_requested"
    reason: Reason
    by: str
    note: str = ""
    mode: str = "hard"  # hard | graceful: the tools that run may finish


class Ended(Event):
    """The last event of a session; nothing follows it."""

    terminal = True
    status: Status
    reason: Reason
    partial: bool
    usage: Usage
    error: str | None = None
    output: str | None = None


class TaskCompleted(Ended):
    type = "task_completed"


class TaskFailed(Ended):
    type = "task_failed"


class TaskCancelled(Ended):
    type = "task_cancelled"


ENDED: dict[Status, type[Ended]] = {
    Status.COMPLETED: TaskCompleted,
    Status.FAILED: TaskFailed,
    Status.CANCELLED: TaskCancelled,
}


class Recorded(BaseModel):
    """An event as the log keeps it."""

    session_id: str
    seq: int
    conv_seq: int
    type: str
    at: datetime
    data: dict[str, Any] = Field(default_factory=dict)
