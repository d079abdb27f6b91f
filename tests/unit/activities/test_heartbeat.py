"""Heartbeats, in the SDK's ActivityEnvironment."""

import asyncio

import pytest
from temporalio import activity
from temporalio.testing import ActivityEnvironment

from activities import attempt
from activities.attempt import cancel_requested, complete_work, with_heartbeats


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> tuple[ActivityEnvironment, list[object]]:
    monkeypatch.setattr(attempt, "BEAT_SECONDS", 0.01)
    environment, beats = ActivityEnvironment(), list[object]()
    environment.on_heartbeat = lambda *details: beats.append(details)
    return environment, beats


async def test_cancelled_activity_knows_that_cancellation_was_requested(
    environment: tuple[ActivityEnvironment, list[object]],
) -> None:
    alone, _ = environment

    @with_heartbeats
    async def waits() -> bool:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return cancel_requested()
        return False

    running = asyncio.create_task(alone.run(waits))
    await asyncio.sleep(0.05)
    alone.cancel(cancellation_details=activity.ActivityCancellationDetails(cancel_requested=True))
    assert await running is True


async def test_worker_that_shuts_down_waits_for_the_write_that_it_cancels(
    environment: tuple[ActivityEnvironment, list[object]],
) -> None:
    alone, _ = environment
    steps: list[str] = []

    async def writes() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)  # a rollback takes its time
            steps.append("rolled back")

    async def commits() -> None:
        try:
            await complete_work(writes())
        finally:
            steps.append("ended")

    running = asyncio.create_task(alone.run(commits))
    await asyncio.sleep(0.05)
    alone.cancel(cancellation_details=activity.ActivityCancellationDetails(worker_shutdown=True))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert steps == ["rolled back", "ended"]
