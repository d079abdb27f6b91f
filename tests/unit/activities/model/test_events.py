"""Server-sent events of a reply, however they are cut into chunks."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.model import models
from activities.model.anthropic import read_named
from activities.model.models import StreamFailed
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


@pytest.mark.parametrize("data", [b"[1]", b'{"a": NaN}'])
async def test_data_that_is_no_object_is_a_malformed_reply(data: bytes) -> None:
    with pytest.raises(ValueError):
        await found(b"event: a\ndata: " + data + b"\n\n")


@pytest.mark.parametrize("data", [b'{"error": {"type": "api_error", "message": "x"}}', b"", b"text"])
async def test_event_named_error_fails_the_stream(data: bytes) -> None:
    with pytest.raises(StreamFailed) as failed:
        await found(b"event: a\ndata: {}\n\nevent: error\ndata: " + data + b"\n\n")
    assert failed.value.kind == ("api_error" if data.startswith(b"{") else "unknown_error")


@pytest.mark.parametrize("chunk", [b"data: " + b"x" * 60, b"data: xxxxx\n" * 20])
async def test_event_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch, chunk: bytes) -> None:
    monkeypatch.setattr(models, "MOST_EVENT", 50)
    with pytest.raises(ValueError, match="too long"):
        await found(chunk)
