"""Heartbeats around an activity's body: how a dead worker is noticed and a cancel gets in."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from temporalio import activity

BEAT_SECONDS = 1.0
P = ParamSpec("P")
T = TypeVar("T")


@contextlib.asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    if activity.info().is_local:  # it lives within its workflow task; the SDK would warn that nobody knows it
        yield
        return

    async def beat() -> None:
        while True:  # a short activity is over before it would have to show that it lives
            await asyncio.sleep(BEAT_SECONDS)
            activity.heartbeat()

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()


def beating(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """An activity that shows as a whole that it lives, however short it should be: a dead worker's is soon retried."""

    @functools.wraps(function)
    async def beats(*args: P.args, **kwargs: P.kwargs) -> T:
        if not activity.in_activity():  # called by another part of the worker
            return await function(*args, **kwargs)
        async with heartbeating():
            return await function(*args, **kwargs)

    return beats


def cancel_requested() -> bool:
    """Whether a CancelledError means that the session stops; a worker that shuts down cancels too, and is retried."""
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested
