"""The offline model answers in the Messages format that the real SDK reads, and refuses what the real API refuses."""

import asyncio
import re
import sys
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic

from tests.behaviour.offline.conftest import LIST_FILES, MODEL, Ask, Requests, text_of
from tests.support.stack import eventually

USER = [{"role": "user", "content": "[[script:echo]] hi"}]
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
