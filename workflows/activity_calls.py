"""Each activity call: its name, types, timeouts and retries. The workflows call activities through here only."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from temporalio import workflow
from temporalio.common import RetryPolicy

from domain import wire
from domain.agents.mcp_discovery import DiscoveredTools, DiscoverTools
from domain.conversations.requests import ConversationRef, ConversationState, Delivered, Nothing, OpenBatch, OpenedBatch
from domain.conversations.subagents import BegunBatch, DelegationCall, HandOver, HandOverOutcome, Settle
from domain.notifications import DeliveryAttempt, DeliveryOutcome
from domain.schedules import TickCall, TickOutcome
from domain.sessions.acceptance import AcceptanceVerdict, CheckAcceptance
from domain.sessions.input_request import OpenedRequest, OpenRequest, RemindRequest, SettledRequest
from domain.sessions.session import (
    Effect,
    Finish,
    Finished,
    ModelCall,
    ModelReply,
    SessionRef,
    ToolCall,
    ToolOutcome,
    ToolRequest,
    TreeRequest,
    preview,
)
from domain.sessions.session_state import HookCall, HookList, HookOutcome, HookPoints, SessionState

# The definition of an activity for workflows, and its retries.


In = TypeVar("In", bound=BaseModel)
Out = TypeVar("Out", bound=BaseModel)

NEVER_RETRIED = [wire.PAYLOADS_TOO_LARGE]  # an oversized result would otherwise be retried without end

# How long a heartbeat may be overdue: a worker that pauses for less is busy rather than dead, and no call is repeated.
LONGEST_PAUSE = timedelta(seconds=4)

# If a workflow task waits longer for a local activity, additional events in the history keep it alive.
LOCAL_TIMEOUT = timedelta(seconds=2)

# For calls that must succeed: no last attempt. The first pause is for a worker that died.
PERSISTENT = RetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    maximum_interval=timedelta(seconds=10),
    non_retryable_error_types=NEVER_RETRIED,
)
# A failed model call sets its own retry delay; this first pause is for a worker that died.
UNTIL_DEADLINE = RetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    maximum_interval=timedelta(seconds=60),
    non_retryable_error_types=NEVER_RETRIED,
)


class Heartbeats:
    """How often the activities of this worker send heartbeats."""

    def __init__(self) -> None:
        self.every = timedelta(seconds=1)

    @property
    def timeout(self) -> timedelta:
        """The time after which a retry takes over from a worker that died during an activity, or lost the server."""
        return self.every + LONGEST_PAUSE


# One for the process. Replay does not compare the timeouts of activities.
HEARTBEATS = Heartbeats()


@dataclass(frozen=True)
class TypedActivity(Generic[In, Out]):
    """An activity with its types, as workflows call it."""

    name: str
    takes: type[In]
    gives: type[Out]

    def start(self, argument: In, *, name: str | None = None, **options: Any) -> "workflow.ActivityHandle[Out]":
        options.setdefault("heartbeat_timeout", HEARTBEATS.timeout)
        return workflow.start_activity(
            name or self.name,
            argument,
            result_type=self.gives,
            # The activity commits its partial work before the workflow continues; then the caller checks the stop flag.
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            **options,
        )

    def start_local(self, argument: In, *, name: str | None = None, summary: str) -> "workflow.ActivityHandle[Out]":
        """Run the activity within the workflow task, without a round trip through the server, in one short attempt."""
        return workflow.start_local_activity(
            name or self.name,
            argument,
            result_type=self.gives,
            start_to_close_timeout=LOCAL_TIMEOUT,
            retry_policy=RetryPolicy(maximum_attempts=1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=summary,
        )


@dataclass(frozen=True)
class ShortActivity(TypedActivity[In, Out]):
    """An activity that is repeated, most until they succeed; most are short, on our own database."""

    summary: Callable[[In], str] = lambda argument: ""
    within: timedelta = timedelta(seconds=30)  # one attempt
    altogether: timedelta | None = None
    grace: timedelta = timedelta(seconds=1)  # after the time `until` which it is repeated
    retry: RetryPolicy = field(default_factory=lambda: PERSISTENT)

    def __call__(
        self, argument: In, summary: str | None = None, *, until: datetime | None = None
    ) -> "workflow.ActivityHandle[Out]":
        left = self.altogether if until is None else max(until - workflow.now(), timedelta()) + self.grace
        return self.start(
            argument,
            start_to_close_timeout=self.within,
            schedule_to_close_timeout=left,
            retry_policy=self.retry,
            summary=preview(summary if summary is not None else self.summary(argument), 200),
        )


finish_session = ShortActivity(  # the one ending
    "finish_session", Finish, Finished, lambda finish: f"{finish.reason.status} · {finish.reason}"
)
restore_session = ShortActivity(
    "restore_session", SessionRef, SessionState, lambda ref: "continue from what was committed"
)
settle_delegation = ShortActivity("settle_delegation", Settle, ToolOutcome, lambda settle: f"result of {settle.tool}")
hand_over = ShortActivity("hand_over", HandOver, HandOverOutcome, lambda call: f"{call.name}: {call.summary}")
record_delivery = ShortActivity("record_delivery", Delivered, Nothing, lambda delivered: "record delivery")
load_conversation = ShortActivity(
    "load_conversation", ConversationRef, ConversationState, lambda ref: "load the conversation"
)
# Ask the conversation for the children of one step; ids derive from the calls, so a retry asks for the same.
begin_delegations = ShortActivity("begin_delegations", DelegationCall, BegunBatch, within=timedelta(minutes=2))
open_sessions = ShortActivity(
    "open_sessions",
    OpenBatch,
    OpenedBatch,
    lambda batch: f"write {len(batch.sessions)} session(s)",
    within=timedelta(seconds=60),
)
# One attempt. A receiver's refusal is a result, and the workflow decides when to try again.
deliver = ShortActivity(
    "deliver", DeliveryAttempt, DeliveryOutcome, lambda attempt: "attempt", within=timedelta(seconds=90)
)
# Run the schedule's check, which may take ten minutes, and send its message. The time makes every retry the same tick.
tick = ShortActivity(
    "tick", TickCall, TickOutcome, lambda call: f"tick of {call.at.isoformat()}", within=timedelta(minutes=12)
)
open_request = ShortActivity("open_request", OpenRequest, OpenedRequest)
settle_request = ShortActivity("settle_request", OpenRequest, SettledRequest, lambda settle: f"answer to {settle.kind}")
remind_request = ShortActivity(
    "remind_request", RemindRequest, Nothing, lambda remind: "escalation" if remind.escalate else "reminder"
)
# Fetch the repository, check it out and run the longest setup.
prepare_tree = ShortActivity(
    "prepare_tree",
    TreeRequest,
    Nothing,
    lambda request: "prepare the repository",
    within=timedelta(minutes=45),
    retry=UNTIL_DEADLINE,
)
# The session has ended for its caller once this is done, so it gets little time.
collect_changes = ShortActivity(
    "collect_changes",
    TreeRequest,
    Nothing,
    lambda request: "keep the changes as a patch",
    altogether=timedelta(seconds=60),
)
# Run commands and a judging model call.
check_acceptance = ShortActivity(
    "check_acceptance",
    CheckAcceptance,
    AcceptanceVerdict,
    lambda check: f"acceptance criteria, round {check.round}",
    within=timedelta(minutes=30),
    grace=timedelta(seconds=60),
    retry=UNTIL_DEADLINE,
)
list_hooks = ShortActivity(
    "list_hooks", HookList, HookPoints, lambda wanted: f"hooks of {wanted.agent.name}", altogether=timedelta(minutes=5)
)
# Run the hooks of one moment. Each has its own time limit, and so have all of them together.
run_hooks = ShortActivity(
    "run_hooks",
    HookCall,
    HookOutcome,
    lambda call: f"hooks {call.point}",
    within=timedelta(minutes=5),
    altogether=timedelta(minutes=10),
)
# A caller waits for this, so the attempt of a dead worker is repeated only once.
discover_tools = ShortActivity(
    "discover_tools",
    DiscoverTools,
    DiscoveredTools,
    lambda wanted: ", ".join(wanted.servers),
    retry=RetryPolicy(maximum_attempts=2),
)

CALL_MODEL = TypedActivity("call_model", ModelCall, ModelReply)
CALL_HANDLER = TypedActivity("call_handler", ModelCall, ModelReply)
ACTIVATE = TypedActivity("activate", ModelCall, ModelReply)
ATTEMPTS = TypedActivity("attempts", ModelCall, ModelReply)
# one registered activity per tool: tool.bash, tool.read_file, …
RUN_TOOL = TypedActivity("tool.*", ToolRequest, ToolOutcome)

CUT_TIME = timedelta(seconds=1)  # for a reply that is cut off, until it is stored
# A retry cannot repeat a call that may happen only once; it can only report its outcome as unknown. So a worker that
# lost Temporal for a moment gets longer to report the result than for other calls, whose retry does the work.
ONCE_PATIENCE = timedelta(seconds=5)
# What an attempt may take besides its tool's own time: the workspace is restored, the call waits for its turn in it,
# and its files and its result wait for a database that is away. Heartbeats notice a dead worker sooner.
AROUND_CALL = timedelta(minutes=15)


def call_model(
    call: ModelCall, by: TypedActivity[ModelCall, ModelReply] = CALL_MODEL, name: str | None = None
) -> "workflow.ActivityHandle[ModelReply]":
    """One reply of the model, or of the activity `by`. It is retried until the session's deadline; only errors that
    cannot heal end it sooner."""
    left = call.deadline - workflow.now() + timedelta(seconds=60)
    options: dict[str, Any] = {
        "start_to_close_timeout": timedelta(minutes=10),
        "schedule_to_close_timeout": max(left, timedelta(seconds=60)),
    }
    speaker = f" · {call.speaker}" if call.speaker else ""
    if call.cut_at is not None:  # the session is already over
        options = {"schedule_to_close_timeout": call.cut_at - workflow.now() + CUT_TIME}
    return by.start(
        call,
        retry_policy=UNTIL_DEADLINE,
        summary=preview(f"{call.purpose} {call.step}{speaker} · {name or call.model}", 200),
        **options,
    )


def run_tool(request: ToolRequest, call: ToolCall) -> "workflow.ActivityHandle[ToolOutcome]":
    """One tool call, or the stop of one that continues elsewhere. A retry is safe for every effect: the claim in the
    store decides whether the tool runs again."""
    return RUN_TOOL.start(
        request,
        name=call.activity,
        start_to_close_timeout=timedelta(seconds=call.timeout_s) + AROUND_CALL,
        heartbeat_timeout=HEARTBEATS.timeout + (ONCE_PATIENCE if call.effect is Effect.ONCE else timedelta()),
        retry_policy=PERSISTENT,
        summary=preview(f"stop {call.preview}" if request.cancel else call.preview, 200),
    )


def run_bookkeeping_tool(request: ToolRequest, call: ToolCall) -> "workflow.ActivityHandle[ToolOutcome]":
    """Make one attempt as a local activity, for tools that touch only our own records; if it fails, use `run_tool`."""
    return RUN_TOOL.start_local(request, name=call.activity, summary=preview(call.preview, 200))
