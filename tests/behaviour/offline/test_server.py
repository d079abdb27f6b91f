"""The offline model answers in the Messages format that the real SDK reads, and refuses what the real API refuses."""

import asyncio
import json
import re
import socket
import sys
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic

from offline.server import listen
from tests.behaviour.offline.conftest import LIST_FILES, MODEL, Ask, Requests, text_of, with_results

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


async def test_text_is_streamed_in_pieces(client: AsyncAnthropic) -> None:
    messages: Any = [{"role": "user", "content": "[[script:say words=30]]"}]
    async with client.messages.stream(model=MODEL, max_tokens=500, messages=messages) as stream:
        pieces = [piece async for piece in stream.text_stream]
    assert len(pieces) == 10
    assert "".join(pieces).split()[-1] == "word30"


async def test_tools_script_makes_several_calls_and_quotes_their_results(ask: Ask) -> None:
    messages: list[Any] = [{"role": "user", "content": TWO_CALLS}]
    reply = await ask(messages)
    assert reply.stop_reason == "tool_use"
    assert [(block.name, block.input) for block in reply.content] == [("list_files", {"path": "."}), ("list_files", {})]
    final = await ask(with_results(messages, reply, [("a.txt", False), ("no such folder", True)]))
    assert final.stop_reason == "end_turn"
    assert "list_files returned: a.txt" in text_of(final)
    assert "list_files failed: no such folder" in text_of(final)


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


async def test_thinking_can_be_hidden(ask: Ask) -> None:
    prompt = '[[script:think thought="Weighing it." text="Done."]]'
    shown = await ask(prompt, model="claude-sonnet-5-5", thinking={"type": "adaptive"})
    assert (shown.content[0].thinking, shown.content[1].text) == ("Weighing it.", "Done.")
    hidden = await ask(prompt, model="claude-sonnet-5-5", thinking={"type": "adaptive", "display": "omitted"})
    assert hidden.content[0].thinking == ""
    assert [block.type for block in (await ask(prompt)).content] == ["text"]


async def test_reply_longer_than_max_tokens_is_cut(ask: Ask) -> None:
    reply = await ask("[[script:say words=500]]", max_tokens=10)
    assert reply.stop_reason == "max_tokens"
    assert len(text_of(reply)) == 40


async def test_prompt_cache_reads_what_was_written(ask: Ask) -> None:
    system = [{"type": "text", "text": "A long and stable prefix. " * 100, "cache_control": {"type": "ephemeral"}}]
    first = (await ask("[[script:echo]] cache one", system=system)).usage
    assert first.cache_creation_input_tokens > 600
    assert first.cache_read_input_tokens == 0
    second = (await ask("[[script:echo]] cache two", system=system)).usage
    assert second.cache_read_input_tokens == first.cache_creation_input_tokens
    assert second.cache_creation_input_tokens == 0
    assert second.input_tokens == first.input_tokens < 40
    other_model = (await ask("[[script:echo]] cache two", system=system, model="claude-opus-4-5")).usage
    assert other_model.cache_read_input_tokens == 0


async def test_prompt_cache_follows_a_growing_conversation(ask: Ask) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    block = {"type": "text", "text": "[[script:count n=2]] " + "cached words " * 50}
    messages: list[Any] = [{"role": "user", "content": [{**block, **mark}]}]
    reply = await ask(messages)
    messages[0] = {"role": "user", "content": [block]}
    later = with_results(messages, reply, [("result " * 50, False)])
    later[-1]["content"][-1].update(mark)
    usage = (await ask(later)).usage
    assert usage.cache_read_input_tokens == reply.usage.cache_creation_input_tokens > 0
    assert usage.cache_creation_input_tokens > 80


async def test_server_counts_tokens_and_lists_models(client: AsyncAnthropic) -> None:
    messages: Any = [{"role": "user", "content": "x" * 4_000}]
    assert (await client.messages.count_tokens(model=MODEL, messages=messages)).input_tokens == 1_001
    models = [model.id async for model in client.models.list()]
    assert {"offline", MODEL} <= set(models)


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
        ({"max_tokens": 0}, "max_tokens"),
        ({"model": None}, "model"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "first message must use"),
        ({"messages": [{"role": "system", "content": "hi"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": ""}]}, "non-empty content"),
        ({"messages": [{"role": "user", "content": []}]}, "non-empty content"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": " "}]}]}, "non-whitespace"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages.0.content.0"),
        ({"messages": [*USER, {"role": "assistant", "content": [CALL]}]}, "without `tool_result`.*toolu_a"),
        ({"messages": [*USER, {"role": "assistant", "content": [CALL]}, *USER]}, "without `tool_result`.*toolu_a"),
        ({"messages": [{"role": "user", "content": [ANSWER]}]}, "unexpected `tool_use_id`.*toolu_a"),
        (
            {"messages": [*USER, {"role": "assistant", "content": "ok"}, {"role": "user", "content": [ANSWER]}]},
            "unexpected `tool_use_id`.*toolu_a",
        ),
        (
            {
                "messages": [
                    *USER,
                    {"role": "assistant", "content": [CALL]},
                    {"role": "user", "content": [ANSWER, ANSWER]},
                ]
            },
            "single result.*toolu_a",
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
        ({"tools": [{"name": "no spaces", "input_schema": {"type": "object"}}]}, "tools.0"),
        ({"tools": [{"name": "fine", "input_schema": {"type": "array"}}]}, "input_schema"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5_000}}, "greater than `thinking.budget_tokens`"),
        ({"model": "claude-sonnet-5-5", "thinking": {"type": "enabled", "budget_tokens": 1_024}}, "adaptive"),
        (
            {"system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5},
            "maximum of 4 blocks",
        ),
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


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
async def test_body_is_read_in_every_encoding_of_json(url: str, encoding: str) -> None:
    messages = [{"role": "user", "content": "[[script:echo]] größte"}]
    body = {"model": MODEL, "max_tokens": 2_000, "system": "a lone surrogate: \ud800", "messages": messages}
    for ascii in (True, False):
        content = json.dumps(body, ensure_ascii=ascii).encode(encoding, "surrogatepass")
        async with httpx2.AsyncClient(headers={"x-api-key": "any"}) as http:
            answer = await http.post(f"{url}/v1/messages", content=content)
        assert answer.json()["content"][0]["text"] == "größte"


@pytest.mark.parametrize("content", [b"", b"{", b'{"model": "m"} x', b"'", b"\xff", b'{"model": "a\nb"}'])
async def test_body_that_is_not_json_is_refused(url: str, content: bytes) -> None:
    async with httpx2.AsyncClient(headers={"x-api-key": "any"}) as http:
        answer = await http.post(f"{url}/v1/messages", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "The request body is not valid JSON"


async def test_request_log_has_the_outcome_of_each_request(ask: Ask, requests: Requests, url: str) -> None:
    await ask('[[script:echo]] logged "größte" words')
    [entry] = await requests('logged "größte" words')
    assert (entry["model"], entry["turn"], entry["status"], entry["outcome"]) == (MODEL, 1, 200, "answered")
    assert entry["body"]["stream"] is True
    async with httpx2.AsyncClient() as http:
        assert (await http.delete(f"{url}/_requests", headers={"x-api-key": "k"})).status_code == 204
    assert await requests("") == []


def test_listening_socket_disables_nagles_delay() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


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
