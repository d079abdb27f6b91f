"""Starts run after the response, in order within a conversation, and not without bound."""

import asyncio

from api.submission.start_queue import StartQueue


class HeldStart:
    """A start that takes until it is released."""

    def __init__(self) -> None:
        self.began, self.release, self.ended = asyncio.Event(), asyncio.Event(), False

    async def __call__(self) -> None:
        self.began.set()
        await self.release.wait()
        self.ended = True


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_request_does_not_wait_for_its_start() -> None:
    starts, held = StartQueue(), HeldStart()
    await starts.run("one", held)
    await held.began.wait()
    assert len(starts) == 1 and not held.ended
    held.release.set()
    await starts.drain()
    assert held.ended and len(starts) == 0


async def test_request_waits_for_its_start_while_too_many_run() -> None:
    starts, first, second = StartQueue(most=1), HeldStart(), HeldStart()
    await starts.run("one", first)
    request = asyncio.create_task(starts.run("two", second))
    await second.began.wait()  # it does not wait for the first
    await turns()
    assert not request.done()
    second.release.set()
    await request
    assert second.ended and not first.ended
    first.release.set()
    await starts.drain()


async def test_start_goes_through_although_its_request_is_cancelled() -> None:
    starts, first, second = StartQueue(most=1), HeldStart(), HeldStart()
    await starts.run("one", first)
    request = asyncio.create_task(starts.run("two", second))
    await second.began.wait()
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    for held in (first, second):
        held.release.set()
    await starts.drain()
    assert first.ended and second.ended


async def test_starts_of_one_conversation_run_in_order() -> None:
    starts, first, second, other = StartQueue(), HeldStart(), HeldStart(), HeldStart()
    await starts.run("one", first)
    await starts.run("one", second)
    await starts.run("two", other)
    await other.began.wait()
    await turns()
    assert first.began.is_set() and not second.began.is_set()
    first.release.set()
    await second.began.wait()
    for held in (second, other):
        held.release.set()
    await starts.drain()


async def test_signal_waits_for_the_start_of_its_conversation_only() -> None:
    starts, held = StartQueue(), HeldStart()
    await starts.run("one", held)
    assert not await starts.settled("two")
    signal = asyncio.create_task(starts.settled("one"))
    await turns()
    assert not signal.done()
    held.release.set()
    assert await signal
    assert not await starts.settled("one")


async def test_drain_ends_starts_that_take_too_long() -> None:
    starts, held = StartQueue(patience_s=0.05), HeldStart()
    await starts.run("one", held)
    await asyncio.wait_for(starts.drain(), 5)
    await turns()
    assert len(starts) == 0 and not held.ended


async def test_waiting_for_starts_is_bounded() -> None:
    starts, listed = StartQueue(patience_s=0.05), [HeldStart() for _ in range(20)]
    for held in listed:
        await starts.run("one", held)
    async with asyncio.timeout(0.5):  # all of them one after the other would take twice as long
        assert await starts.settled("one")
        await listed[-1].began.wait()
    await starts.drain()
