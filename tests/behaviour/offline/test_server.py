"""The offline model answers in the Messages format that the real SDK reads, and refuses what the real API refuses."""

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic

from tests.behaviour.offline.conftest import LIST_FILES, MODEL, Ask, Requests, text_of, with_results
from tests.support.stack import eventually

USER = [{"role": "user", "content": "[[script:echo]] hi"}]
TWO_CALLS = '[[script:tools json=[{"name":"list_files","input":{"path":"."}},{"name":"list_files","input":{}}]]] two'
CALL = {"type": "tool_use", "id": "toolu_a", "name": "list_files", "input": {}}
ANSWER = {"type": "tool_result", "tool_use_id": "toolu_a", "content": "x"}


async def test_streamed_and_whole_answers_agree(ask: Ask, client: AsyncAnthropic) -> None:
    question = "[[script:echo]] Grüße from a streaming test, with several words in it"
    streamed = await ask(question)
    whole = await client.messages.create(
        model=MODEL, max_tokens=4_096, messages=[{"role": "user", "content": question}]
    )
    assert text_of(streamed) == text_of(whole) == "Grüße from a streaming test, with several words in it"
    assert streamed.stop_reason == whole.stop_reason == "end_turn"
    assert streamed.usage.output_tokens == whole.usage.output_tokens > 0


async def test_same_request_gets_the_same_answer(ask: Ask) -> None:
    first, second = await ask(TWO_CALLS), await ask(TWO_CALLS)
    assert first.id == second.id
    assert first.content == second.content


async def test_thinking_has_a_signature_that_is_checked(ask: Ask) -> None:
    options: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
    messages: list[Any] = [{"role": "user", "content": TWO_CALLS}]
    reply = await ask(messages, **options)
    assert reply.content[0].type == "thinking"
    assert "list_files" in reply.content[0].thinking
    history = with_results(messages, reply, [("a", False), ("b", False)])
    assert (await ask(history, **options)).stop_reason == "end_turn"
    reply.content[0].thinking += " changed"
    with pytest.raises(anthropic.BadRequestError, match="Invalid `signature`"):
        await ask(with_results(messages, reply, [("a", False), ("b", False)]), **options)


async def test_reply_longer_than_max_tokens_is_cut(ask: Ask) -> None:
    reply = await ask("[[script:say words=500]]", max_tokens=10)
    assert reply.stop_reason == "max_tokens"
    assert len(text_of(reply)) == 40


async def test_server_refuses_missing_and_invalid_keys(url: str) -> None:
    async with AsyncAnthropic(base_url=url, api_key="invalid", max_retries=0) as client:
        with pytest.raises(anthropic.AuthenticationError, match="invalid x-api-key"):
            await client.messages.create(model=MODEL, max_tokens=10, messages=[{"role": "user", "content": "hi"}])
    async with httpx2.AsyncClient() as http:
        assert (await http.post(f"{url}/v1/messages", json={})).status_code == 401


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "first message must use"),
        ({"messages": [{"role": "user", "content": []}]}, "non-empty content"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": " "}]}]}, "non-whitespace"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages.0.content.0"),
        ({"messages": [*USER, {"role": "assistant", "content": [CALL]}, *USER]}, "without `tool_result`.*toolu_a"),
        (
            {"messages": [*USER, {"role": "assistant", "content": "ok"}, {"role": "user", "content": [ANSWER]}]},
            "unexpected `tool_use_id`.*toolu_a",
        ),
        ({"messages": [*USER, {"role": "assistant", "content": [CALL, CALL]}]}, "unique: toolu_a"),
        (
            {
                "messages": [
                    *USER,
                    {"role": "assistant", "content": [CALL]},
                    {"role": "user", "content": [{"type": "text", "text": "first"}, ANSWER]},
                ]
            },
            "must come before",
        ),
        ({"messages": [*USER, {"role": "assistant", "content": "Sure, "}]}, "prefill"),
        ({"tools": [LIST_FILES, LIST_FILES]}, "unique"),
        ({"tools": [{"name": "fine", "input_schema": {"type": "array"}}]}, "input_schema"),
        ({"messages": [{"role": "user", "content": "x" * 800_100}]}, "prompt is too long: 200026 tokens > 200000"),
        ({"messages": [{"role": "user", "content": "[[script:nonsense]]"}]}, "no such script.*echo"),
        ({"messages": [{"role": "user", "content": "[[script:tools json=[oops]]]"}]}, "not JSON"),
        ({"messages": [{"role": "user", "content": "[[fault:nonsense]]"}]}, "no such fault"),
    ],
)
async def test_server_refuses_what_the_real_api_refuses(url: str, change: dict[str, Any], message: str) -> None:
    body = {"model": MODEL, "max_tokens": 2_000, "messages": USER, **change}
    async with httpx2.AsyncClient(headers={"authorization": "Bearer any"}) as http:
        answer = await http.post(f"{url}/v1/messages", json={k: v for k, v in body.items() if v is not None})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.headers["request-id"] == answer.json()["request_id"]

    assert re.search(message, answer.json()["error"]["message"]), answer.json()


async def test_request_log_has_the_outcome_of_each_request(
    ask: Ask, client: AsyncAnthropic, requests: Requests
) -> None:
    await ask('[[script:echo]] logged "größte" words')
    [entry] = await requests('logged "größte" words')
    assert (entry["model"], entry["status"], entry["outcome"]) == (MODEL, 200, "answered")
    assert entry["body"]["stream"] is True
    messages: Any = [{"role": "user", "content": "[[script:say words=900 delay=0.05]] leaving"}]
    async with client.messages.stream(model=MODEL, max_tokens=9_000, messages=messages) as stream:
        async for _ in stream.text_stream:
            break

    async def left() -> bool:
        return [one["outcome"] for one in await requests("leaving")] == ["disconnected"]

    assert await eventually(left)


async def test_server_runs_as_a_command() -> None:
    command = (sys.executable, "-m", "offline", "--port", "0")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
        address = line.split()[-1]
        async with httpx2.AsyncClient() as http:
            assert (await http.get(f"{address}/healthz")).json() == {"status": "ok"}
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 10) in (0, -15)


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
