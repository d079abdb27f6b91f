"""Operations that failed are retried until they succeed, and do not wait for each other."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from temporalio.service import RPCError, RPCStatusCode

from api.control import retry_queue
from api.control.retry_queue import RetryQueue
from tests.support.stack import eventually


@pytest.fixture
async def waiting() -> AsyncIterator[RetryQueue]:
    made = RetryQueue(pause_s=0.01)
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class Failing:
    """Succeeds at the n-th call, or never if n is 0."""

    def __init__(self, succeeds_at: int = 0) -> None:
        self.succeeds_at = succeeds_at
        self.calls = 0

    async def __call__(self) -> bool:
        self.calls += 1
        return self.calls == self.succeeds_at


class Refused(Failing):
    async def __call__(self) -> bool:
        self.calls += 1
        raise RPCError("no such search attribute", RPCStatusCode.INVALID_ARGUMENT, b"")


async def empty(waiting: RetryQueue) -> None:
    async def look() -> bool:
        return not len(waiting)

    await eventually(look, seconds=10, pause=0.01, what="all succeeded")


async def test_operation_is_retried_until_it_succeeds(waiting: RetryQueue) -> None:
    first, second = Failing(3), Failing(1)
    waiting.add("a start", first)
    await empty(waiting)
    waiting.add("another", second)
    await empty(waiting)
    assert (first.calls, second.calls) == (3, 1)


async def test_failing_operations_do_not_delay_others(waiting: RetryQueue) -> None:
    for number in range(3 * retry_queue.AT_ONCE):
        waiting.add(f"failing {number}", Failing())

    async def breaks() -> bool:
        raise RuntimeError("not today")

    waiting.add("broken", breaks)
    good = Failing(1)
    waiting.add("good", good)

    async def succeeded() -> bool:
        return good.calls == 1

    await eventually(succeeded, seconds=10, pause=0.01, what="the last operation succeeded")
    assert len(waiting) == 3 * retry_queue.AT_ONCE + 1  # the others still wait, including the one that always fails


async def test_queue_is_bounded(waiting: RetryQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_queue, "MOST", 2)
    for name in ("a", "b", "c", "a"):
        waiting.add(name, Failing())
    assert len(waiting) == 2


async def test_refusal_that_repeating_cannot_cure_is_logged_and_not_retried(
    waiting: RetryQueue, caplog: pytest.LogCaptureFixture
) -> None:
    refused = Refused()
    waiting.add("the start of a session", refused)
    await empty(waiting)
    assert refused.calls == 1
    assert "the start of a session was refused and will not be retried: no such search attribute" in caplog.text
