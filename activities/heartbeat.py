"""Heartbeats around an activity's body: how a dead worker is noticed and a cancel gets in."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from temporalio import activity

BEAT_SECONDS = 1.0


@contextlib.asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    async def beat() -> None:
        while True:  # a short activity is over before it would have to show that it lives
            await asyncio.sleep(BEAT_SECONDS)
            activity.heartbeat()

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()


def cancel_requested() -> bool:
    """Whether a CancelledError means that the session stops; a worker that shuts down cancels too, and is retried."""
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested
