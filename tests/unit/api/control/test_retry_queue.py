"""What nobody could be told is told again until it is heard, and nobody waits for somebody else's."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from api.control import retry_queue as later
from api.control.retry_queue import RetryQueue
from tests.support.stack import eventually


@pytest.fixture
async def waiting() -> AsyncIterator[RetryQueue]:
    made = RetryQueue(pause_s=0.01)
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class Deaf:
    """Hears at the n-th time; never, if that is 0."""

    def __init__(self, hears_at: int = 0) -> None:
        self.hears_at = hears_at
        self.asked = 0

    async def __call__(self) -> bool:
        self.asked += 1
        return self.asked == self.hears_at


async def empty(waiting: RetryQueue) -> None:
    async def look() -> bool:
        return not len(waiting)

    await eventually(look, seconds=10, pause=0.01, what="all was heard")


async def test_it_is_tried_until_it_is_heard_and_no_longer(waiting: RetryQueue) -> None:
    deed, second = Deaf(3), Deaf(1)
    waiting.add("a start", deed)
    await empty(waiting)
    waiting.add("another", second)
    await empty(waiting)
    assert (deed.asked, second.asked) == (3, 1)


async def test_those_that_nobody_answers_hold_up_nobody(waiting: RetryQueue) -> None:
    for number in range(3 * later.AT_ONCE):
        waiting.add(f"deaf {number}", Deaf())

    async def breaks() -> bool:
        raise RuntimeError("not today")

    waiting.add("broken", breaks)
    good = Deaf(1)
    waiting.add("good", good)

    async def heard() -> bool:
        return good.asked == 1

    await eventually(heard, seconds=10, pause=0.01, what="the last in line was heard")
    assert len(waiting) == 3 * later.AT_ONCE + 1  # the others wait on, the broken one too


async def test_only_so_many_are_remembered(waiting: RetryQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "MOST", 2)
    for name in ("a", "b", "c", "a"):
        waiting.add(name, Deaf())
    assert len(waiting) == 2
