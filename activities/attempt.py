"""One attempt of an activity: which run and attempt it is, its heartbeats, what a cancel of it means, and what Temporal
learns if it fails. Every activity may import it.

A session gets another run after a reset, or if it is restarted because its workflow was deleted or Temporal lost its
data. The database refuses writes of a run that it does not know (`check_run`); Temporal knows which run is current.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from domain import wire
from domain.events import CallAttempt
from domain.ids import current_tenant, session_workflow_id
from domain.sessions.session import SessionRef
from store import runs
from store.agents import UnreadableAgent
from store.database import TRANSIENT_ERRORS, Pool

BEAT_SECONDS = 1.0
DESCRIBE_WITHIN = timedelta(seconds=2)
ASK_WITHIN = timedelta(seconds=5)
P = ParamSpec("P")
T = TypeVar("T")


# which attempt it is


def run_of(ref: SessionRef) -> str | None:
    """The run to which this activity belongs; None if it does not belong to the workflow of this session."""
    if not activity.in_activity():
        return None
    info = activity.info()
    return info.workflow_run_id if info.workflow_id == session_workflow_id(ref.session_id) else None


def call_attempt() -> CallAttempt:
    """The current attempt of this activity. The call is the same in all retries, and another one after a reset, which
    therefore asks the model again."""
    info = activity.info()
    call = f"{info.workflow_id}/{info.workflow_run_id}/{info.activity_id}"
    return CallAttempt(call=call, attempt=info.attempt)


# heartbeats: through them Temporal notices a dead worker and delivers a cancel


@contextlib.asynccontextmanager
async def send_heartbeats() -> AsyncIterator[None]:
    if activity.info().is_local:  # a local activity has no heartbeats; the SDK would log a warning
        yield
        return

    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def beat() -> None:
        nonlocal timer
        timer = loop.call_later(BEAT_SECONDS, beat)
        activity.heartbeat()

    # Wait first: a short activity ends before its first heartbeat is due. So it needs no task, only a timer, which runs
    # in the context of the activity.
    timer = loop.call_later(BEAT_SECONDS, beat)
    try:
        yield
    finally:
        timer.cancel()


def with_heartbeats(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Wrap a whole activity in heartbeats, however short it is, so that it is retried soon after its worker dies."""

    @functools.wraps(function)
    async def beats(*args: P.args, **kwargs: P.kwargs) -> T:
        if not activity.in_activity():  # called directly by another part of the worker
            return await function(*args, **kwargs)
        async with send_heartbeats():
            return await function(*args, **kwargs)

    return beats


def cancel_requested() -> bool:
    """Whether a CancelledError means that the session stops. A worker that shuts down cancels too; the
    activity is then retried."""
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested


async def workflow_is_gone() -> bool:
    """Whether the workflow of a cancelled activity was ended from outside. Temporal cancels the activity in the same
    way as for a stop. False if that cannot be found out."""
    info = activity.info()
    if info.workflow_id is None:
        return False
    handle = activity.client().get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
    try:
        description = await handle.describe(rpc_timeout=DESCRIBE_WITHIN)
    except RPCError as error:
        return error.status is RPCStatusCode.NOT_FOUND
    return description.status is not WorkflowExecutionStatus.RUNNING


async def complete_work(work: Awaitable[T]) -> T:
    """What the work returns, although a stop of the session arrives meanwhile: it records what has already happened. A
    worker that shuts down cancels it; the activity is then retried."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not cancel_requested():
            task.cancel()
            await asyncio.wait({task})  # so that nothing is written after the activity has ended
            raise
        return await task  # a second cancellation reaches it


# failures


@contextmanager
def retry_if_away() -> Iterator[None]:
    """If the database is unreachable, let Temporal try the activity again in a second."""
    try:
        yield
    except TRANSIENT_ERRORS as error:
        pause = timedelta(seconds=1)
        raise ApplicationError(
            "The database is unavailable.", type=wire.DATABASE_AWAY, next_retry_delay=pause
        ) from error


class OwnFailureTexts(Interceptor):
    """Keep the texts of failed activities in Temporal's history to those that we wrote. The SDK writes an exception
    with its causes there, and their texts are of libraries: a database quotes the row, a validation the value, the
    endpoint of a model the request. The log of the worker has them, without secrets."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _OwnTexts(next)


class _OwnTexts(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        try:
            return await super().execute_activity(input)
        except FailureError as error:
            if error.__cause__ is not None:
                activity.logger.warning("an activity failed", exc_info=error)
            raise error from None
        except UnreadableAgent as error:  # it was logged, and a retry would read the same
            raise ApplicationError(error.detail, type=wire.UNREADABLE_AGENT, non_retryable=True) from None
        except Exception as error:
            activity.logger.warning("an activity failed unexpectedly", exc_info=error)
            raise ApplicationError(_text(error), type=type(error).__name__) from None


def _text(error: Exception) -> str:
    reason = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
    return f"{type(error).__name__}{reason}; the worker's log has the details."


# the fence around the runs of a session: only the current one may write


class RunFence(Interceptor):
    """Decides about a run that the database refused: it gets the session if it continued the known run as new."""

    def __init__(self, pool: Pool, client: Client) -> None:
        self.pool = pool
        self.client = client

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _FencedActivity(next, self)


class _FencedActivity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, fence: RunFence) -> None:
        super().__init__(next)
        self._pool, self._client = fence.pool, fence.client

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        current_tenant.set(activity.info().priority.fairness_key or "")  # each activity has a context of its own
        while True:
            try:
                return await super().execute_activity(input)
            except runs.SessionEnded as error:
                raise ApplicationError(str(error), type=wire.SESSION_ENDED, non_retryable=True) from error
            except runs.NotCurrentAttempt as error:  # Temporal drops this failure if it is about the present call
                raise ApplicationError(str(error), type=wire.SUPERSEDED) from error
            except runs.NotCurrentRun as error:
                await self._admit(error.holder)

    async def _admit(self, before: runs.Holder) -> None:
        """Return if this run continues the one that owns the session; the refused activity then runs again."""
        info = activity.info()
        await check_current(self._client)
        handle = self._client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        first = await anext(handle.fetch_history_events(page_size=1, rpc_timeout=ASK_WITHIN))
        if first.workflow_execution_started_event_attributes.continued_execution_run_id != before.run_id:
            raise ApplicationError(
                "The session is not where this run of its workflow believes it to be.",
                type=wire.OUTDATED,
                non_retryable=True,
            )
        await runs.take_over(self._pool, before, info.workflow_run_id or "")


async def check_current(client: Client) -> None:
    """Refuse an activity whose run is no longer the current one of its workflow."""
    info = activity.info()
    try:
        found = await client.get_workflow_handle(info.workflow_id or "").describe(rpc_timeout=ASK_WITHIN)
        current = found.run_id
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        current = "none"
    if current != info.workflow_run_id:
        raise ApplicationError(f"Another run has this session: {current}.", type=wire.SUPERSEDED, non_retryable=True)
