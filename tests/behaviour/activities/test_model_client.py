"""The model's client against a server that sends exactly the bytes of a test."""

import asyncio
import contextlib
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from activities.model.models import ModelFailure, Models
from domain.agents.models import Kind, PriceTable, Provider, Providers
from domain.messages import ModelMessage, ModelRequest, ModelResponse, TextBlock

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
FAILED = b"HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    handled: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handled.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line[15:] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
            await reader.readexactly(int(lengths[0]))
            await handler(reader, writer)
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.wait({task for task in handled if task}, timeout=5)


def sending(*parts: bytes) -> Handler:
    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()

    return handle


@pytest.fixture(params=["anthropic", "openai"])
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


async def failure_of(kind: Kind, url: str, seconds: float = 5.0) -> ModelFailure:
    providers = Providers(default=kind, named={kind: Provider(kind=kind, base_url=url, key="key")})
    models = Models(providers, PriceTable(providers=providers))
    vendor: Any = models.vendor("m")[0]
    vendor.client = vendor.client.with_options(timeout=seconds)
    message = ModelMessage(role="user", content=[TextBlock(text="hello")])
    request = ModelRequest(model="m", system="s", messages=[message], max_tokens=100)
    try:
        with pytest.raises(Exception) as raised:
            await models.ask(request, ModelResponse(), lambda _: None, lambda _: None)
        return models.classify(raised.value, "m")
    finally:
        await models.close()


@pytest.mark.parametrize(
    ("parts", "type"),
    [
        ((), "connection_error"),
        ((b"HTTP/1.1 200",), "connection_error"),
        ((b"SSH-2.0-OpenSSH\r\n",), "connection_error"),
        ((STREAM + b"nonsense\r\n",), "connection_error"),
        ((STREAM + b"5\r\nab",), "connection_error"),
        ((STREAM + b"0\r\n\r\n",), "incomplete_stream"),
        (
            (STREAM.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + b"2\r\nno\r\n0\r\n\r\n",),
            "malformed_reply",
        ),
        ((FAILED + b"\r\n2\r\n{}\r\n0\r\n\r\n",), "api_error"),
    ],
    ids=["nothing", "head", "ssh", "chunk-size", "chunk", "empty", "not-gzip", "failed"],
)
async def test_broken_response_is_a_failure_that_is_tried_again(
    kind: Kind, parts: tuple[bytes, ...], type: str
) -> None:
    async with serving(sending(*parts)) as url:
        failure = await failure_of(kind, url)
    assert (failure.type, failure.retryable) == (type, True), failure


async def test_silent_server_is_a_timeout_and_a_missing_one_an_error_of_the_connection(kind: Kind) -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        await reader.read()

    async with serving(wait) as url:
        assert (await failure_of(kind, url, 0.2)).type == "timeout_error"
    missing = await failure_of(kind, url)
    assert missing.type == "connection_error" and missing.message.startswith("The model cannot be reached")


async def test_endless_body_of_a_failed_call_is_not_read_to_its_end(kind: Kind) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(FAILED + b"\r\n")
        for _ in range(3_000):
            writer.write(b"186a0\r\n" + b"x" * 100_000 + b"\r\n")
            await writer.drain()
            sent += 100_000

    async with serving(flood) as url:
        failure = await failure_of(kind, url)
    assert (failure.type, failure.retryable) == ("api_error", True) and len(failure.message) < 1_000
    assert sent < 30_000_000  # what the buffers of both sides and of the system hold


async def test_compressed_body_of_a_failed_call_does_not_fill_the_memory(kind: Kind) -> None:
    packed = gzip.compress(gzip.compress(b"x" * 100_000_000))
    body = FAILED + b"Content-Encoding: gzip, gzip\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed)
    async with serving(sending(body)) as url:
        tracemalloc.start()
        try:
            failure = await failure_of(kind, url)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert failure.type == "api_error" and most < 20_000_000, (failure, most)


async def test_redirect_is_not_followed_with_the_key(kind: Kind) -> None:
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:9/v1/messages\r\nContent-Length: 0\r\n\r\n"
    async with serving(sending(moved)) as url:
        failure = await failure_of(kind, url)
    assert "status 307" in failure.message, failure


async def test_a_client_of_another_cloud_takes_the_same_way() -> None:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
    ]
    sent = b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events)
    async with serving(sending(STREAM + b"%x\r\n%b\r\n0\r\n\r\n" % (len(sent), sent))) as url:
        providers = Providers(default="foundry", named={"foundry": Provider(kind="foundry", base_url=url, key="key")})
        models, turn = Models(providers, PriceTable(providers=providers)), ModelResponse()
        message = ModelMessage(role="user", content=[TextBlock(text="hello")])
        request = ModelRequest(model="claude-sonnet-4-5", system="s", messages=[message], max_tokens=100)
        assert await models.problem("claude-sonnet-4-5") is None  # it has no list of models, so nothing is known
        await models.ask(request, turn, lambda _: None, lambda _: None)
        await models.close()
    assert turn.content == [TextBlock(text="hello")]
    assert turn.usage.cost_usd == pytest.approx((3 * 3 + 5 * 15) / 1_000_000)


async def test_a_cloud_without_its_package_or_region_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    providers = Providers(default="bedrock", named={"bedrock": Provider(kind="bedrock")})
    models = Models(providers, PriceTable(providers=providers))
    problem = await models.problem("anthropic.claude-sonnet-4-5-20250929-v1:0")
    assert problem and problem.startswith("The provider bedrock ") and ("pip install" in problem or "region" in problem)
    with pytest.raises(Exception) as raised:
        await models.ask(ModelRequest("m", 9, "s", []), ModelResponse(), lambda _: None, lambda _: None)
    failure = models.classify(raised.value, "m")
    assert (failure.type, failure.retryable, failure.message) == ("not_configured", False, problem)
