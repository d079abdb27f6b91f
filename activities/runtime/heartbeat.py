"""Heartbeats around an activity's body. Through them Temporal notices a dead worker and delivers a cancel."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

BEAT_SECONDS = 1.0
DESCRIBE_WITHIN = timedelta(seconds=2)
P = ParamSpec("P")
T = TypeVar("T")


@contextlib.asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    if activity.info().is_local:  # a local activity has no heartbeats; the SDK would log a warning
        yield
        return

    # Wait first: a short activity ends before its first heartbeat is due. So it needs no task, only a timer.
    timer = _Timer()
    try:
        yield
    finally:
        timer.cancel()


class _Timer:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(BEAT_SECONDS, self._beat)  # in the context of the activity

    def _beat(self) -> None:
        self._next = self._loop.call_later(BEAT_SECONDS, self._beat)
        activity.heartbeat()

    def cancel(self) -> None:
        self._next.cancel()


def beating(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Wrap a whole activity in heartbeats, however short it is, so that it is retried soon after its worker dies."""

    @functools.wraps(function)
    async def beats(*args: P.args, **kwargs: P.kwargs) -> T:
        if not activity.in_activity():  # called directly by another part of the worker
            return await function(*args, **kwargs)
        async with heartbeating():
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


async def completed(work: Awaitable[T]) -> T:
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
