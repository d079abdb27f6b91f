"""Events, which watchers read. To add one: a class in its topic's file, its name in EVENTS, the line that emits it."""

from domain.events.base import CallAttempt as CallAttempt
from domain.events.base import Event
from domain.events.base import EventRow as EventRow
from domain.events.base import Recorded as Recorded
from domain.events.conversation import (
    HandedOver,
    MailboxUpdated,
    MessageReceived,
    SubagentEnded,
    SubagentStarted,
    VariablesRequired,
)
from domain.events.input_requests import InputEscalated, InputExpired, InputReceived, InputReminder, InputRequired
from domain.events.limits import AcceptanceChecked, Anomaly, BudgetLow, BudgetRaised, SubagentBudgetExceeded
from domain.events.model import (
    AttemptReset,
    ContextCompacted,
    ContextLost,
    Message,
    MessageDelta,
    ModelRetry,
    ModelSwitched,
    Thinking,
    ThinkingDelta,
    UsageUpdated,
)
from domain.events.steps import HookFailed, PlanUpdated, Progress, Replanning, StepCompleted, StepStarted
from domain.events.task import ENDED as ENDED
from domain.events.task import (
    CancelRequested,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    TaskSubmitted,
)
from domain.events.task import Ended as Ended
from domain.events.tools import ArtifactSaved, McpToolChanged, ToolCalled, ToolReturned, WorkspaceNotKept

# every event that a session can emit
EVENTS: tuple[type[Event], ...] = (
    TaskSubmitted,
    TaskStarted,
    CancelRequested,
    TaskCompleted,
    TaskFailed,
    TaskCancelled,
    StepStarted,
    StepCompleted,
    Progress,
    HookFailed,
    PlanUpdated,
    Replanning,
    ThinkingDelta,
    MessageDelta,
    AttemptReset,
    Thinking,
    Message,
    UsageUpdated,
    ModelRetry,
    ModelSwitched,
    ContextCompacted,
    ContextLost,
    ToolCalled,
    ToolReturned,
    ArtifactSaved,
    McpToolChanged,
    WorkspaceNotKept,
    SubagentStarted,
    SubagentEnded,
    MailboxUpdated,
    MessageReceived,
    HandedOver,
    VariablesRequired,
    InputRequired,
    InputReceived,
    InputExpired,
    InputReminder,
    InputEscalated,
    BudgetLow,
    BudgetRaised,
    SubagentBudgetExceeded,
    Anomaly,
    AcceptanceChecked,
)
