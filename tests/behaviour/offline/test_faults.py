"""Faults without streaming, and clients that leave; activities/test_call_model.py shows those in a stream."""

import asyncio
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic

from tests.behaviour.offline.conftest import MODEL, Ask, Requests, text_of


async def test_short_answer_is_cut_as_well(ask: Ask) -> None:
    assert (await ask("[[script:say text=Hi]] [[fault:cut after=50]]")).stop_reason is None


async def test_client_that_leaves_a_slow_stream_is_noticed(client: AsyncAnthropic, requests: Requests) -> None:
    messages: Any = [{"role": "user", "content": "[[script:say words=900 delay=0.05]] leaving"}]
    async with client.messages.stream(model=MODEL, max_tokens=9_000, messages=messages) as stream:
        async for _ in stream.text_stream:
            break
    await _until(requests, "leaving", "disconnected")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("overloaded_midstream", anthropic.OverloadedError),
        ("api_midstream", anthropic.InternalServerError),
        ("invalid_midstream", anthropic.BadRequestError),
        ("cut", anthropic.APIConnectionError),
        ("drop", anthropic.APIConnectionError),
        ("hang", anthropic.APITimeoutError),
    ],
)
async def test_faults_happen_without_streaming_too(client: AsyncAnthropic, fault: str, error: type[Exception]) -> None:
    messages: Any = [{"role": "user", "content": f"[[fault:{fault}]] [[script:echo]] whole {fault}"}]
    with pytest.raises(error):
        await client.messages.create(model=MODEL, max_tokens=500, messages=messages, timeout=0.5)
    assert text_of(await client.messages.create(model=MODEL, max_tokens=500, messages=messages)) == f"whole {fault}"


async def _until(requests: Requests, contains: str, outcome: str) -> None:
    for _ in range(250):
        if [entry["outcome"] for entry in await requests(contains)] == [outcome]:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(await requests(contains))
