"""Server-sent events of a reply, however they are cut into chunks."""

from collections.abc import AsyncIterator

import httpx2
from hypothesis import given
from hypothesis import strategies as st

from activities.model.anthropic import read_named
from domain.json_object import JsonObject

STREAM = (
    ': comment\r\nevent: a\r\ndata: {"type": "a", "text": "é\\u2028 x"}\r\n\r\n'
    'id: 7\ndata:{"type":\nevent:b\ndata: "b"}\n\n\n'
    'event: ping\ndata: {"type": "ping"}\n\nevent: ping\ndata\n\nevent: c\n\n'
    'data: {"type": "nameless"}\n\ndata: [DONE]\n\n'
    'event: cut\ndata: {"type": "cut off"}\n'
).encode()
FOUND = [{"type": "a", "text": "é\u2028 x"}, {"type": "b"}]


async def found(*chunks: bytes) -> list[JsonObject]:
    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    request = httpx2.Request("POST", "http://model.example")
    return [event async for event in read_named(httpx2.Response(200, content=body(), request=request))]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
async def test_events_do_not_depend_on_the_chunks(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    assert await found(*(STREAM[a:b] for a, b in zip(places, places[1:], strict=False))) == FOUND
