"""The model's client against a server that sends exactly the bytes of a test."""

import asyncio
import contextlib
import gzip
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from activities.model import models
from activities.model.models import ModelFailure, Models
from domain.agents.models import Kind, PriceTable, Provider, Providers
from domain.messages import ModelMessage, ModelRequest, ModelResponse, TextBlock
from domain.pictures import FileBlock

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]
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
            await handler(reader, writer, await reader.readexactly(int(lengths[0])))
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        if left := {task for task in handled if task}:  # none, if the client gave up before it was connected
            await asyncio.wait(left, timeout=5)


def sending(*parts: bytes) -> Handler:
    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()

    return handle


@pytest.fixture(params=["anthropic", "openai"])
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


async def answer_of(
    kind: Kind,
    url: str,
    seconds: float = 5.0,
    files: dict[str, bytes] | None = None,
    block: FileBlock | TextBlock = TextBlock(text="hello"),  # noqa: B008
) -> ModelFailure | ModelResponse:
    providers = Providers(default=kind, named={kind: Provider(kind=kind, base_url=url, key="key")})
    models, turn = Models(providers, PriceTable(providers=providers)), ModelResponse()
    vendor: Any = models.vendor("m")[0]
    vendor.client = vendor.client.with_options(timeout=seconds)
    message = ModelMessage(role="user", content=[block])
    request = ModelRequest(model="m", system="s", messages=[message], max_tokens=100, files=files or {})
    try:
        await models.ask(request, turn, lambda _: None, lambda _: None)
    except Exception as error:
        return models.classify(error, "m")
    finally:
        await models.close()
    return turn


async def failure_of(kind: Kind, url: str, seconds: float = 5.0) -> ModelFailure:
    failure = await answer_of(kind, url, seconds)
    assert isinstance(failure, ModelFailure), failure
    return failure


@pytest.mark.parametrize(
    ("parts", "type"),
    [
        ((), "connection_error"),
        ((STREAM + b"5\r\nab",), "connection_error"),
        ((STREAM + b"0\r\n\r\n",), "incomplete_stream"),
        (
            (STREAM.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + b"2\r\nno\r\n0\r\n\r\n",),
            "malformed_reply",
        ),
        ((FAILED + b"\r\n2\r\n{}\r\n0\r\n\r\n",), "api_error"),
    ],
    ids=["nothing", "chunk", "empty", "not-gzip", "failed"],
)
async def test_broken_response_is_a_failure_that_is_tried_again(
    kind: Kind, parts: tuple[bytes, ...], type: str
) -> None:
    async with serving(sending(*parts)) as url:
        failure = await failure_of(kind, url)
    assert (failure.type, failure.retryable) == (type, True), failure


async def test_endless_body_of_a_failed_call_is_not_read_to_its_end(kind: Kind) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
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


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def streamed(kind: Kind, *pieces: Any) -> bytes:
    """A whole stream of these events: objects, or a text for a piece of the reply's text."""
    sent = []
    for piece in pieces:
        if isinstance(piece, str):
            said = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
            piece = said if kind == "anthropic" else {"choices": [{"delta": {"content": piece}}]}
        name = f"event: {piece['type']}\n" if isinstance(piece, dict) and "type" in piece else ""
        sent.append(f"{name}data: {json.dumps(piece)}\n\n".encode())
    return STREAM + chunked(b"".join(sent)) + b"0\r\n\r\n"


def begun(**usage: Any) -> list[Any]:
    return [
        {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1, **usage}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]


ENDED: dict[Kind, Any] = {
    "anthropic": {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
    "openai": {"choices": [{"delta": {}, "finish_reason": "stop"}]},
}
# what follows the beginning of a reply, which is malformed if it is None
ODD: dict[Kind, dict[str, tuple[list[Any], str | None]]] = {
    "anthropic": {
        "nulls": ([*begun(input_tokens=None), "hi", {"type": "message_delta", "delta": None}], None),
        "huge counts": ([*begun(input_tokens=10**40), "hi", ENDED["anthropic"]], "hi"),
        "another block": (
            [*begun(), {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta"}}],
            None,
        ),
    },
    "openai": {
        "nulls": (
            [{"choices": None, "usage": None, "id": None}, "hi", {"choices": [{"delta": None}]}, ENDED["openai"]],
            "hi",
        ),
        "huge counts": (["hi", {"usage": {"prompt_tokens": 10**40, "completion_tokens": 1}}, ENDED["openai"]], "hi"),
        "a number as text": ([{"choices": [{"delta": {"content": 7}}]}], None),
        "no usage": (["hi", ENDED["openai"]], "hi"),
    },
}


@pytest.mark.parametrize("name", ODD["anthropic"] | ODD["openai"])
async def test_odd_pieces_make_a_malformed_reply_or_none(kind: Kind, name: str) -> None:
    if name not in ODD[kind]:
        return
    pieces, said = ODD[kind][name]
    async with serving(sending(streamed(kind, *pieces))) as url:
        answer = await answer_of(kind, url)
    if said is None:
        assert isinstance(answer, ModelFailure) and (answer.type, answer.retryable) == ("malformed_reply", True), answer
        return
    assert isinstance(answer, ModelResponse) and answer.answer() == said, answer
    counts = answer.usage.input_tokens, answer.usage.output_tokens
    assert all(0 < count < 10_000 for count in counts), counts  # estimated, if the endpoint's are none
    assert answer.estimated == ("counts" in name or kind == "openai")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "Invalid content type. image_url is only supported by certain models."),
        (500, "image input is not supported - hint: you may need to provide the mmproj"),
    ],
)
async def test_a_model_that_refuses_files_reads_what_they_are(kind: Kind, status: int, said: str) -> None:
    asked: list[bytes] = []
    picture = FileBlock(type="image", file_id="f", name="map.png", media_type="image/png", size=3, width=4, height=5)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
        asked.append(body)
        refusal = json.dumps({"error": {"type": "invalid_request_error", "message": said}}).encode()
        head = b"HTTP/1.1 %d No\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        shown = b"cGlj" in body  # the picture
        writer.write(head % (status, len(refusal)) + refusal if shown else streamed(kind, *begun(), "ok", ENDED[kind]))
        await writer.drain()

    async with serving(refuse) as url:
        answer = await answer_of(kind, url, files={"f": b"pic"}, block=picture)
    assert isinstance(answer, ModelResponse) and answer.answer() == "ok", answer
    first, second = (body.decode() for body in asked)
    assert "map.png" not in first or "not shown here" not in first
    assert "[picture map.png, 4×5, 3 bytes, file id f: not shown here]" in second


async def test_more_calls_than_a_history_can_hold_are_a_malformed_reply(kind: Kind) -> None:
    blocks = [{"type": "tool_use", "id": "same", "name": "x" * 90, "input": {}} for _ in range(1_000)]
    claude = [{"type": "content_block_start", "index": n + 1, "content_block": one} for n, one in enumerate(blocks)]
    call = {"index": 0, "id": "same", "function": {"name": "x" * 90, "arguments": "{}"}}
    gpt = {"choices": [{"delta": {"tool_calls": [{**call, "index": n} for n in range(1_000)]}}]}
    pieces = [*begun(), *claude, ENDED[kind]] if kind == "anthropic" else [gpt, ENDED[kind]]
    async with serving(sending(streamed(kind, *pieces))) as url:
        failure = await failure_of(kind, url)
    assert failure.type == "malformed_reply" and "1,000 calls" in failure.message


async def test_gigabyte_of_one_line_takes_neither_memory_nor_time(kind: Kind) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
        nonlocal sent
        writer.write(STREAM + chunked(b"data: "))
        for _ in range(100_000):
            writer.write(chunked(b"x" * 10_000))
            await writer.drain()
            sent += 10_000

    async with serving(flood) as url:
        begins, spent = time.monotonic(), time.process_time()
        failure = await failure_of(kind, url, seconds=60)
    assert failure.type == "malformed_reply" and "too long" in failure.message
    assert sent < 60_000_000 and time.process_time() - spent < 4, (sent, time.monotonic() - begins)


async def test_one_byte_now_and_then_is_a_timeout(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "LONGEST_CALL", 0.5)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
        writer.write(STREAM)
        for _ in range(100):
            writer.write(chunked(b":"))
            await writer.drain()
            await asyncio.sleep(0.05)

    async with serving(drip) as url:
        failure = await failure_of(kind, url)
    assert (failure.type, failure.retryable) == ("timeout_error", True) and "took longer than" in failure.message


async def test_endless_text_ends(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MOST_STREAM", 1_000_000)
    first = streamed(kind, *begun()) if kind == "anthropic" else STREAM
    piece = streamed(kind, "x" * 1_000).removeprefix(STREAM).removesuffix(b"0\r\n\r\n")

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
        writer.write(first.removesuffix(b"0\r\n\r\n"))
        for _ in range(100_000):
            writer.write(piece)
            await writer.drain()

    async with serving(flood) as url:
        failure = await failure_of(kind, url, seconds=60)
    assert failure.type == "malformed_reply" and "the stream is too long" in failure.message
