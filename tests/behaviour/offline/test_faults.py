"""Every fault reaches the SDK in the same form as from the real API."""

import asyncio
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic

from tests.behaviour.offline.conftest import MODEL, Ask, Requests, text_of, with_results


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("429", anthropic.RateLimitError),
        ("529", anthropic.OverloadedError),
        ("500", anthropic.InternalServerError),
        ("503", anthropic.ServiceUnavailableError),
        ("504", anthropic.GatewayTimeoutError),
        ("413", anthropic.ContentTooLargeError),
        ("403", anthropic.PermissionDeniedError),
        ("404", anthropic.NotFoundError),
        ("auth", anthropic.AuthenticationError),
    ],
)
async def test_error_status_happens_once_before_the_answer(ask: Ask, fault: str, error: type[Exception]) -> None:
    prompt = f"[[script:echo]] [[fault:{fault}]] status {fault}"
    with pytest.raises(error):
        await ask(prompt)
    assert text_of(await ask(prompt)) == f"status {fault}"


async def test_fault_happens_as_often_as_asked_with_its_headers(ask: Ask) -> None:
    prompt = "[[script:echo]] [[fault:429 times=2 retry_after=7 x_should_retry=false]] [[fault:529]] counted"
    for _ in range(2):
        with pytest.raises(anthropic.RateLimitError) as limited:
            await ask(prompt)
        assert limited.value.response.headers["retry-after"] == "7"
        assert limited.value.response.headers["x-should-retry"] == "false"
    with pytest.raises(anthropic.OverloadedError):
        await ask(prompt)
    assert text_of(await ask(prompt)) == "counted"


async def test_fault_always_repeats_and_conversations_are_counted_separately(ask: Ask) -> None:
    for _ in range(3):
        with pytest.raises(anthropic.OverloadedError):
            await ask("[[fault:529 times=always]] always")
    for name in ("one", "two"):
        with pytest.raises(anthropic.InternalServerError):
            await ask(f"[[fault:500]] [[script:echo]] {name}")


async def test_fault_can_be_limited_to_one_reply_and_one_model(ask: Ask) -> None:
    messages: list[Any] = [{"role": "user", "content": "[[script:count n=2]] [[fault:500 at=2]] turns"}]
    later = with_results(messages, await ask(messages), [("a.txt", False)])
    with pytest.raises(anthropic.InternalServerError):
        await ask(later)
    assert (await ask(later)).stop_reason == "tool_use"
    prompt = f"[[fault:529 times=always model={MODEL}]] [[script:echo]] model"
    with pytest.raises(anthropic.OverloadedError):
        await ask(prompt)
    assert text_of(await ask(prompt, model="claude-opus-4-5")) == "model"


@pytest.mark.parametrize(
    ("fault", "type"),
    [
        ("overloaded_midstream", "overloaded_error"),
        ("api_midstream", "api_error"),
        ("invalid_midstream", "invalid_request_error"),
    ],
)
async def test_error_event_ends_a_stream_midway(ask: Ask, client: AsyncAnthropic, fault: str, type: str) -> None:
    prompt = f"[[script:say words=30]] [[fault:{fault}]]"
    pieces = []
    with pytest.raises(anthropic.APIStatusError) as caught:
        async with client.messages.stream(
            model=MODEL, max_tokens=500, messages=[{"role": "user", "content": prompt}]
        ) as stream:
            async for piece in stream.text_stream:
                pieces.append(piece)
    assert len(pieces) == 2
    assert caught.value.status_code == 200
    body: Any = caught.value.body
    assert body["error"]["type"] == type
    assert text_of(await ask(prompt)).endswith("word30")


async def test_cut_stream_has_no_stop_reason(ask: Ask, requests: Requests) -> None:
    prompt = "[[script:say words=30]] [[fault:cut after=3]] cut here"
    partial = await ask(prompt)
    assert partial.stop_reason is None
    assert text_of(partial).split()[-1] == "word9"
    assert (await ask(prompt)).stop_reason == "end_turn"
    assert [entry["outcome"] for entry in await requests("cut here")] == ["cut", "answered"]


async def test_short_answer_is_cut_as_well(ask: Ask) -> None:
    assert (await ask("[[script:say text=Hi]] [[fault:cut after=50]]")).stop_reason is None


async def test_dropped_connection_is_an_error_of_the_client(ask: Ask, requests: Requests) -> None:
    prompt = "[[script:say words=30]] [[fault:drop]] drop here"
    with pytest.raises(httpx2.RemoteProtocolError):
        await ask(prompt)
    assert (await ask(prompt)).stop_reason == "end_turn"
    assert [entry["outcome"] for entry in await requests("drop here")] == ["dropped", "answered"]


async def test_slow_stream_pauses_between_deltas(ask: Ask) -> None:
    begin = asyncio.get_running_loop().time()
    await ask("[[script:say words=9]] [[fault:slow delay=0.1]]")
    assert asyncio.get_running_loop().time() - begin >= 0.3


async def test_hanging_stream_ends_when_the_client_leaves(client: AsyncAnthropic, requests: Requests) -> None:
    messages: Any = [{"role": "user", "content": "[[fault:hang]] hanging"}]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5), client.messages.stream(model=MODEL, max_tokens=9, messages=messages) as stream:
            await stream.get_final_message()
    await _until(requests, "hanging", "disconnected")


async def test_client_that_leaves_a_slow_stream_is_noticed(client: AsyncAnthropic, requests: Requests) -> None:
    messages: Any = [{"role": "user", "content": "[[script:say words=900 delay=0.05]] leaving"}]
    async with client.messages.stream(model=MODEL, max_tokens=9_000, messages=messages) as stream:
        async for _ in stream.text_stream:
            break
    await _until(requests, "leaving", "disconnected")


async def test_prompt_beyond_the_given_window_is_refused(ask: Ask) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 50 maximum"):
        await ask("[[fault:toolong window=50]] " + "x" * 400)
    assert (await ask("[[fault:toolong window=5000]] [[script:echo]] short")).stop_reason == "end_turn"


async def test_tool_arguments_can_be_malformed_json(ask: Ask) -> None:
    prompt = "[[script:count n=1]] [[fault:malformed_tool_json]] broken"
    with pytest.raises(ValueError, match="JSON"):
        await ask(prompt)
    assert (await ask(prompt)).content[-1].input == {"path": "./."}


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
