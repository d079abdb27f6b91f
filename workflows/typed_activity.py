"""The definition of an activity for workflows, and its retries."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from temporalio import workflow
from temporalio.common import RetryPolicy

from domain import wire

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
            # Defaults are left out to keep the history small; the activity fills them in again.
            argument.model_dump(mode="json", exclude_defaults=True),
            result_type=self.gives,
            # The activity commits its partial work before the workflow continues; then the caller checks the stop flag.
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            **options,
        )

    def start_short(self, argument: In, summary: str) -> "workflow.ActivityHandle[Out]":
        """A short activity on our own database, repeated until it succeeds."""
        return self.start(
            argument, start_to_close_timeout=timedelta(seconds=30), retry_policy=PERSISTENT, summary=summary
        )

    def start_local(self, argument: In, *, name: str | None = None, summary: str) -> "workflow.ActivityHandle[Out]":
        """Run the activity within the workflow task, without a round trip through the server, in one short attempt."""
        return workflow.start_local_activity(
            name or self.name,
            argument.model_dump(mode="json", exclude_defaults=True),
            result_type=self.gives,
            start_to_close_timeout=LOCAL_TIMEOUT,
            retry_policy=RetryPolicy(maximum_attempts=1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=summary,
        )
