"""The model call through the real SDK: what each failure means, and what watchers see of it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from offline.usage import PromptCache
from tests.support.stack import Stack, eventually, of_type

SAY = '[[script:say text="all is well"]]'
RETRIED = {
    "rate limit": "[[fault:429 retry_after=4]]",
    "overloaded": "[[fault:529]]",
    "overloaded in the stream": "[[fault:overloaded_midstream after=1]]",
    "error in the stream": "[[fault:api_midstream after=1]]",
    "stream cut": "[[fault:cut after=1]]",
    "connection dropped": "[[fault:drop after=1]]",
    "told to retry": "[[fault:400 x_should_retry=true]]",
}
REFUSED = {
    "[[fault:invalid_midstream after=1]]": "invalid_request_error",
    "[[fault:403]]": "permission_error",
    "[[fault:404]]": "not_found_error",
    "[[fault:529 x_should_retry=false]]": "overloaded_error",
}


@pytest_asyncio.fixture(scope="module")
async def under_way(stack: Stack) -> dict[str, str]:
    """Run all cases concurrently, so that their waits overlap."""
    faults = [*RETRIED.values(), *REFUSED]
    ids = await asyncio.gather(*(stack.submit(f"{SAY} {fault}") for fault in faults))
    return dict(zip(faults, ids, strict=True))


@pytest.mark.parametrize("name", RETRIED)
async def test_transient_errors_are_retried(stack: Stack, under_way: dict[str, str], name: str) -> None:
    task_id = under_way[RETRIED[name]]
    record = await stack.wait(task_id)
    assert (record["status"], record["retry"]) == ("completed", None)
    assert (await stack.result(task_id))["output"] == "all is well"
    assert len(await stack.asked(task_id)) == 2
    assert record["usage"]["llm_calls"] == 1
    events = await stack.events(task_id)
    kinds = [event["type"] for event in events if event["type"] not in ("usage_updated",)]
    spoiled = ["message_delta"] if "stream" in name or "dropped" in name else []
    assert kinds == [
        *("task_submitted", "task_started", "step_started"),
        *spoiled,
        *("model_retry", "attempt_reset", "message_delta", "message", "step_completed", "task_completed"),
    ]
    [retry] = of_type(events, "model_retry")
    assert (retry["attempt"], retry["step"]) == (1, 1) and retry["reason"]
    [reset] = of_type(events, "attempt_reset")
    promised = (_time(retry["next_at"]) - _time(retry["at"])).total_seconds()
    wanted = 4 if name == "rate limit" else 1  # the delay that the server asked for, or one second
    assert wanted - 0.95 < promised <= wanted
    assert (_time(reset["at"]) - _time(retry["next_at"])).total_seconds() > -0.2


@pytest.mark.parametrize("fault", REFUSED)
async def test_permanent_errors_are_not_retried(stack: Stack, under_way: dict[str, str], fault: str) -> None:
    task_id = under_way[fault]
    record = await stack.wait(task_id)
    assert (record["status"], record["error"]["type"]) == ("failed", REFUSED[fault])
    assert re.search(
        r"\((status 4\d\d|status 529|invalid_request_error); model \S+ at http://", record["error"]["message"]
    )
    assert len(await stack.asked(task_id)) == 1
    assert not of_type(await stack.events(task_id), "model_retry", "message")


@pytest.mark.proves("S1-06")
async def test_a_backing_off_call_is_visible(stack: Stack) -> None:
    task_id = await stack.submit(f"{SAY} [[fault:529 retry_after=5]]")

    async def backing_off() -> dict[str, Any] | None:
        seen: dict[str, Any] | None = (await stack.record(task_id))["retry"]
        return seen

    retry = await eventually(backing_off)
    assert retry["attempt"] == 1
    address = stack.settings.anthropic_base_url
    assert re.fullmatch(rf"Overloaded \(status 529; model claude-\S+ at {address}\)", retry["reason"])
    assert 0 < (_time(retry["next_at"]) - datetime.now(UTC)).total_seconds() < 5
    assert (await stack.record(task_id))["status"] == "working"
    # a retrying session counts as running: there is no third state
    assert await activity_of(stack, task_id) == "running"
    assert (await stack.wait(task_id))["retry"] is None
    assert await activity_of(stack, task_id) == "idle"


async def activity_of(stack: Stack, conversation_id: str) -> str:
    [thread] = (await stack.http.get(f"/conversations/{conversation_id}")).json()["threads"]
    return str(thread["state"])


@pytest_asyncio.fixture(scope="module")
async def switcher(stack: Stack) -> AsyncIterator[str]:
    definition = {
        "name": "switcher",
        "description": "Has other models to fall back to.",
        "model": "claude-sonnet-4-5",
        "fallback_models": ["claude-haiku-4-5", "claude-opus-4-5"],
        "tools": ["list_files"],
        "prompt": "Try.",
    }
    assert (await stack.http.put("/agents/switcher", json=definition)).is_success
    yield "switcher"


@pytest.mark.parametrize(
    ("fault", "asked"),
    [
        ("[[fault:529 retry_after=0 times=always model=claude-sonnet-4-5]]", 3),
        ("[[fault:404 times=always model=claude-sonnet-4-5]]", 1),
    ],
)
@pytest.mark.proves("S1-17")
async def test_unreachable_model_gives_way_to_its_fallback(stack: Stack, switcher: str, fault: str, asked: int) -> None:
    task_id = await stack.submit(f"[[script:count n=2]] {fault}", switcher)
    record = await stack.wait(task_id)
    assert record["status"] == "completed"
    models = [request["model"] for request in await stack.asked(task_id)]
    # later calls stay with the model that answered
    assert models == ["claude-sonnet-4-5"] * asked + ["claude-haiku-4-5"] * 3
    [switch] = of_type(await stack.events(task_id), "model_switched")
    assert (switch["from_model"], switch["to_model"], switch["step"]) == ("claude-sonnet-4-5", "claude-haiku-4-5", 1)


@pytest.mark.parametrize("fault", ["[[fault:413 at=4]]", "[[fault:toolong window=3400]]"])
async def test_a_context_too_long_is_compacted(stack: Stack, fault: str) -> None:
    task_id = await stack.submit(f"[[script:count n=6 grow=1500]] {fault}")
    record = await stack.wait(task_id)
    assert record["status"] == "completed", record["error"]
    assert (await stack.result(task_id))["output"].startswith("Counted 6 steps.")
    compacted = of_type(await stack.events(task_id), "context_compacted")
    assert compacted and all(event["summary"].startswith("Summary:") for event in compacted)
    requests = await stack.asked(task_id)
    assert "<checkpoint>" in json.dumps(requests[-1]["body"]["messages"][0])
    assert len(requests[-1]["body"]["messages"]) < 1 + 2 * 6  # the first message, and six calls with their results


async def test_message_that_comes_while_a_context_is_compacted_is_seen(stack: Stack, switcher: str) -> None:
    unreachable = "[[fault:529 at=4 retry_after=1 times=always model=claude-sonnet-4-5]]"
    task_id = await stack.submit(f"[[script:count n=6]] [[fault:413 at=4]] {unreachable}", switcher)
    await stack.seen(task_id, "model_retry", step=4)
    steered = await stack.http.post(f"/tasks/{task_id}/steer", json={"message": "News of the moon."})
    assert steered.is_success, steered.text
    assert (await stack.wait(task_id))["status"] == "completed"
    kinds = [event["type"] for event in await stack.events(task_id)]
    assert kinds.index("model_switched") < kinds.index("context_compacted"), "nothing was tested"
    assert "News of the moon." in json.dumps((await stack.asked(task_id))[-1]["body"]["messages"])


@pytest.mark.proves("S1-43")
async def test_usage_and_cost_are_exact(stack: Stack) -> None:
    record = await stack.run("[[script:count n=3]]", config={"model": "claude-opus-4-5"})
    task_id = record["task_id"]
    reported = of_type(await stack.events(task_id), "usage_updated")
    requests = await stack.asked(task_id)
    for event, request in zip(reported, requests, strict=True):
        call = event["call"]
        counted = call["input_tokens"] + call["cache_read_tokens"] + call["cache_write_tokens"]
        assert counted == PromptCache().measure(request["body"]).total
    assert reported[-1]["call"]["cache_read_tokens"] > 0  # the stable prefix is cached
    prices = {"input": 5, "output": 25, "cache_read": 0.5, "cache_write": 6.25}
    usage = record["usage"]
    expected = (
        usage["input_tokens"] * prices["input"]
        + usage["output_tokens"] * prices["output"]
        + usage["cache_read_tokens"] * prices["cache_read"]
        + usage["cache_write_tokens"] * prices["cache_write"]
    ) / 1_000_000
    assert usage["cost_usd"] == pytest.approx(expected, abs=1e-9) and expected > 0
    for field in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"):
        assert usage[field] == sum(event["call"][field] for event in reported)
    result = (await stack.result(task_id))["usage"]
    assert (result["llm_calls"], result["tool_invocations"]) == (4, 3)
    assert result["tokens_consumed"] == sum(event["call"]["input_tokens"] for event in reported) + sum(
        usage[field] for field in ("output_tokens", "cache_read_tokens", "cache_write_tokens")
    )


async def test_a_model_without_a_price_has_no_cost(stack: Stack) -> None:
    record = await stack.run(SAY, config={"model": "mystery-1"})
    assert record["status"] == "completed" and record["usage"]["cost_usd"] is None
    refused = await stack.http.post(
        "/tasks", json={"agent": "tester", "input": "x", "config": {"model": "mystery-1", "max_cost_usd": 1.0}}
    )
    assert refused.status_code == 422


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
