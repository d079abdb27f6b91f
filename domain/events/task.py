"""The beginning and the end of a task. The terminal event is the last one of its session."""

from domain.events.base import Event
from domain.sessions.session import Reason, Status, Usage


class TaskSubmitted(Event):
    type = "task_submitted"
    decisive = True
    agent: str
    agent_version: int
    title: str


class TaskStarted(Event):
    type = "task_started"
    model: str


class CancelRequested(Event):
    type = "cancel_requested"
    decisive = True
    reason: Reason
    by: str
    note: str = ""
    mode: str = "hard"  # hard | graceful: running tools may finish first


class Ended(Event):
    """The last event of a session; nothing follows it."""

    terminal = True
    decisive = True
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
