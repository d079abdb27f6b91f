"""Our ends of pipes to child processes, on the event loop of the worker."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable

import uvloop

from activities.sandbox.supervise import PipeEnd

PIPES = 3_000
LARGE = b"line\n" * 100_000  # more than a pipe holds


def on_uvloop(test: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(30):
            await test()

    uvloop.run(within())


async def read_all(pipe: PipeEnd) -> bytes:
    found = b""
    while piece := await pipe.read():
        found += piece
    return found


def test_a_descriptor_is_closed_once() -> None:
    """Another thread opens files meanwhile, which get the numbers that have just become free. Those are its own."""
    lost: list[OSError] = []
    over = threading.Event()

    def other_thread() -> None:
        while not over.is_set():
            try:
                fd = os.open("/dev/null", os.O_RDONLY)
                os.read(fd, 1)
                os.close(fd)
            except OSError as error:
                lost.append(error)

    async def one() -> None:
        reading, writing = map(PipeEnd, os.pipe())
        await writing.write(b"x")
        writing.close()
        assert await read_all(reading) == b"x"
        reading.close()

    async def many() -> None:
        for _ in range(PIPES // 10):
            await asyncio.gather(*(one() for _ in range(10)))

    others = [threading.Thread(target=other_thread) for _ in range(2)]
    for thread in others:
        thread.start()
    try:
        on_uvloop(many)
    finally:
        over.set()
        for thread in others:
            thread.join()
    assert lost == []


def test_a_child_that_writes_without_pause_leaves_the_loop_to_others() -> None:
    async def read() -> None:
        reading, writing = map(PipeEnd, os.pipe())
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        await writing.write(b"x" * 1_000)
        beside = asyncio.create_task(other())
        for _ in range(100):
            assert await reading.read(1) == b"x"
        beside.cancel()
        assert turns >= 100
        reading.close()
        writing.close()

    on_uvloop(read)
