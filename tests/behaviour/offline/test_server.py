"""The offline model answers in the Messages format that the real SDK reads, and refuses what the real API refuses."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from anthropic import AsyncAnthropic

from tests.support.stack import eventually

MODEL = "claude-haiku-4-5"
LIST_FILES = {"name": "list_files", "input_schema": {"type": "object"}}
USER = [{"role": "user", "content": "[[script:echo]] hi"}]
CALL = {"type": "tool_use", "id": "toolu_a", "name": "list_files", "input": {}}
ANSWER = {"type": "tool_result", "tool_use_id": "toolu_a", "content": "x"}


@pytest_asyncio.fixture(scope="module")
async def url() -> AsyncIterator[str]:
    command = (sys.executable, "-m", "offline", "--port", "0")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
        yield line.split()[-1]
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 10) in (0, -15)


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


async def test_answers_and_the_outcome_of_each_request(url: str) -> None:
    question: Any = [{"role": "user", "content": "[[script:say text=größte words=9]]"}]
    leaving: Any = [{"role": "user", "content": "[[script:say words=900 delay=0.05]] leaving"}]

    async def log(contains: str) -> list[dict[str, Any]]:
        async with httpx2.AsyncClient() as http:
            answer = await http.get(f"{url}/_requests", headers={"x-api-key": "k"}, params={"contains": contains})
        found: list[dict[str, Any]] = answer.json()["requests"]
        return found

    async with AsyncAnthropic(base_url=url, api_key="any", max_retries=0, timeout=10) as client:
        async with client.messages.stream(model=MODEL, max_tokens=99, messages=question) as stream:
            streamed = await stream.get_final_message()
        whole = await client.messages.create(model=MODEL, max_tokens=99, messages=question)
        assert text_of(streamed) == text_of(whole) == "größte"
        assert streamed.stop_reason == whole.stop_reason == "end_turn"
        assert streamed.usage.output_tokens == whole.usage.output_tokens > 0
        first, second = await log("größte")
        assert (first["model"], first["status"], first["outcome"]) == (MODEL, 200, "answered")
        assert first["body"]["stream"] is True and "stream" not in second["body"]
        cut = await client.messages.create(model=MODEL, max_tokens=1, messages=leaving)
        assert (cut.stop_reason, text_of(cut)) == ("max_tokens", "word")
        async with client.messages.stream(model=MODEL, max_tokens=9_000, messages=leaving) as stream:
            async for _ in stream.text_stream:
                break

    async def left() -> bool:
        return [one["outcome"] for one in await log("leaving")] == ["answered", "disconnected"]

    assert await eventually(left)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "first message must use"),
        ({"messages": [*USER, {"role": "assistant", "content": [CALL]}, *USER]}, "without `tool_result`.*toolu_a"),
        (
            {"messages": [*USER, {"role": "assistant", "content": "ok"}, {"role": "user", "content": [ANSWER]}]},
            "unexpected `tool_use_id`.*toolu_a",
        ),
        ({"tools": [LIST_FILES, LIST_FILES]}, "unique"),
        ({"messages": [{"role": "user", "content": "x" * 800_100}]}, "prompt is too long: 200026 tokens > 200000"),
        ({"messages": [{"role": "user", "content": "[[script:nonsense]]"}]}, "no such script.*echo"),
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
