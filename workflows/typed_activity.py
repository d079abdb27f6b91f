"""An activity as the workflows call it, and how such calls are retried."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from temporalio import workflow
from temporalio.common import RetryPolicy

from domain import wire

In = TypeVar("In", bound=BaseModel)
Out = TypeVar("Out", bound=BaseModel)

NEVER_RETRIED = [wire.PAYLOADS_TOO_LARGE]  # an oversized result would otherwise be retried for ever

# How soon a retry takes over from a worker that died while it ran an activity. Activities beat every second; five
# missed beats are rather a dead worker than a busy one. A Temporal server that is away for longer has them retried too.
HEARTBEAT_TIMEOUT = timedelta(seconds=5)

# a workflow task that waits longer for a local activity is kept alive by additional events in the history
LOCAL_TIMEOUT = timedelta(seconds=2)

# for what must succeed: short pauses, no last attempt
PERSISTENT = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(seconds=10),
    non_retryable_error_types=NEVER_RETRIED,
)


@dataclass(frozen=True)
class TypedActivity(Generic[In, Out]):
    """An activity as the workflows call it."""

    name: str
    takes: type[In]
    gives: type[Out]

    def start(self, argument: In, *, name: str | None = None, **options: Any) -> "workflow.ActivityHandle[Out]":
        options.setdefault("heartbeat_timeout", HEARTBEAT_TIMEOUT)
        return workflow.start_activity(
            name or self.name,
            # defaults are left out, so that history stays small; the activity fills them in again
            argument.model_dump(mode="json", exclude_defaults=True),
            result_type=self.gives,
            # the activity commits its partial work before the workflow continues; the caller checks the stop flag after
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            **options,
        )

    def start_local(self, argument: In, *, name: str | None = None, summary: str) -> "workflow.ActivityHandle[Out]":
        """Run within the workflow task, without a round trip through the server: one short attempt."""
        return workflow.start_local_activity(
            name or self.name,
            argument.model_dump(mode="json", exclude_defaults=True),
            result_type=self.gives,
            start_to_close_timeout=LOCAL_TIMEOUT,
            retry_policy=RetryPolicy(maximum_attempts=1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=summary,
        )
