"""A reply is sent in as few pieces as its delay and its faults allow."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.behaviour.offline.conftest import MODEL, Requests


class Chunk(NamedTuple):
    """A piece of the response as the server has sent it; empty at the end of a complete response."""

    body: bytes
    at: float

    @property
    def deltas(self) -> int:
        return self.body.count(b"event: content_block_delta")


async def chunks(url: str, prompt: str) -> AsyncIterator[Chunk]:
    """The HTTP chunks of a streamed reply, which clients of HTTP do not show."""
    address = urlsplit(url)
    body = {"model": MODEL, "max_tokens": 4_096, "stream": True, "messages": [{"role": "user", "content": prompt}]}
    content = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        head = (
            f"POST /v1/messages HTTP/1.1\r\nhost: offline\r\nx-api-key: any\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        writer.write(head.encode() + content)
        await reader.readuntil(b"\r\n\r\n")
        size = 1
        while size:
            try:
                size = int(await reader.readuntil(b"\r\n"), 16)
            except asyncio.IncompleteReadError:
                return  # the connection was dropped
            yield Chunk((await reader.readexactly(size + 2))[:-2], time.monotonic())
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("prompt", ["[[script:say words=300]]", "[[script:say words=30]] [[fault:cut after=3]]"])
async def test_reply_without_a_delay_is_one_chunk(url: str, prompt: str) -> None:
    whole, end = [chunk async for chunk in chunks(url, prompt)]
    assert whole.deltas == (3 if "cut" in prompt else 100)
    assert end.body == b""


@pytest.mark.parametrize(
    "prompt", ["[[script:say words=9 delay=0.1]]", "[[script:say words=9]] [[fault:slow delay=0.1]]"]
)
async def test_delayed_reply_arrives_delta_by_delta(url: str, prompt: str) -> None:
    start, *pieces, end = [chunk async for chunk in chunks(url, prompt)]
    assert (start.deltas, [piece.deltas for piece in pieces], end.body) == (0, [1, 1, 1], b"")
    assert b"message_start" in start.body and b"message_stop" in pieces[-1].body
    assert pieces[-1].at - start.at > 0.15  # three pauses of 0.1 s, on a machine that may be busy


async def test_deltas_before_a_drop_arrive(url: str) -> None:
    [before] = [chunk async for chunk in chunks(url, "[[script:say words=30]] [[fault:drop after=3]] before a drop")]
    assert before.deltas == 3


async def test_deltas_before_a_hang_arrive(url: str, requests: Requests) -> None:
    arriving = chunks(url, "[[script:say words=30]] [[fault:hang after=3]] before a hang")
    assert (await asyncio.wait_for(anext(arriving), 5)).deltas == 3
    [entry] = await requests("before a hang")
    assert entry["outcome"] == "open"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(arriving), 0.3)
