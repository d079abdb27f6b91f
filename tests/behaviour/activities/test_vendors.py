"""The same conversations in both vendors' forms, their bad answers, and sessions that go from one to the other."""

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from tests.behaviour.debugging.test_rerun import reran
from tests.support.stack import Stack, calls, eventually, of_type

CLAUDE, GPT = "claude-opus-4-5", "openai/gpt-4o"
PRICES = {CLAUDE: (5.0, 25.0, 0.5, 6.25), GPT: (2.5, 10.0, 1.25, 2.5)}
COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
SAY = '[[script:say text="all is well"]]'
FAILED: dict[str, tuple[str, str]] = {  # the fault, and the kind of error that ends the session at once
    "quota": ("429 code=insufficient_quota times=always", "billing_error"),
    "content": ("400 code=content_filter times=always", "content_refused"),
    "parameter": ('400 code=unknown_parameter message="Unknown parameter: x" times=always', "unknown_parameter"),
    "no tools": ('400 message="m does not support tools" times=always', "tools_unsupported"),
    "broken arguments": ("malformed_tool_json times=always", "malformed_reply"),
}


def cost(model: str, call: dict[str, Any]) -> float:
    return float(sum(call[name] * price for name, price in zip(COUNTS, PRICES[model], strict=True))) / 1_000_000


@pytest.mark.parametrize("model", [CLAUDE, GPT])
async def test_a_turn_with_parallel_calls_costs_what_was_used(stack: Stack, model: str) -> None:
    work = calls(("list_files", {"path": "."}), ("write_file", {"path": "a.txt", "content": "x"}))
    record = await stack.run(f"{work} [[script:count n=2]]", config={"model": model})
    assert record["status"] == "completed", record["error"]
    used = of_type(await stack.events(record["task_id"]), "usage_updated")
    assert {event["model"] for event in used} == {model}
    assert record["usage"]["cost_usd"] == pytest.approx(sum(cost(model, event["call"]) for event in used), abs=1e-9)
    assert used[-1]["call"]["cache_read_tokens"] > 0 and record["usage"]["tool_invocations"] >= 2
    assert not any(event.get("estimated") for event in used)


@pytest_asyncio.fixture(scope="module")
async def under_way(stack: Stack) -> dict[str, str]:
    """Run all cases concurrently, so that their waits overlap."""
    faults = [fault for fault, _ in FAILED.values()]
    work = calls(("list_files", {"path": "."}))
    ids = await asyncio.gather(*(stack.submit(f"{work} [[fault:{one}]]", config={"model": GPT}) for one in faults))
    return dict(zip(faults, ids, strict=True))


@pytest.mark.parametrize("name", FAILED)
async def test_hopeless_errors_end_the_session(stack: Stack, under_way: dict[str, str], name: str) -> None:
    fault, kind = FAILED[name]
    record = await stack.wait(under_way[fault], seconds=90)
    assert (record["status"], record["error"]["type"]) == ("failed", kind)
    retries = of_type(await stack.events(record["task_id"]), "model_retry")
    assert len(retries) == (4 if name == "broken arguments" else 0)  # each attempt at a reply is paid for
    if name != "broken arguments":
        assert "model gpt-4o at http://127.0.0.1" in record["error"]["message"]


async def test_a_refused_key_waits_and_names_its_setting(stack: Stack) -> None:
    task_id = await stack.submit(SAY, config={"model": "locked/gpt-4o"})

    async def retried() -> list[dict[str, Any]]:
        return of_type(await stack.events(task_id), "model_retry")

    [retry, *_] = await eventually(retried)
    assert "Set a valid key of [providers.locked] and start again. The task waits for it." in retry["reason"]
    await stack.cancel(task_id)
    assert (await stack.wait(task_id))["status"] == "cancelled"


async def test_an_endpoint_of_another_form_is_named(stack: Stack) -> None:
    record = await stack.run(SAY, config={"model": "mistaken/claude-opus-4-5"})
    assert (record["status"], record["error"]["type"]) == ("failed", "wrong_form")
    message = record["error"]["message"]
    assert "asked at /v1/messages in Anthropic's form, and seems to speak another one" in message
    assert "status 404; model claude-opus-4-5 at http://127.0.0.1" in message and "provider mistaken" in message


@pytest.fixture(params=[("claude-sonnet-4-5", GPT), (GPT, "claude-sonnet-4-5"), ("locked/gpt-4o", "claude-sonnet-4-5")])
async def pair(stack: Stack, request: pytest.FixtureRequest) -> tuple[str, str]:
    first, second = request.param
    definition = {
        "name": "vendors-traveller",
        "description": "Goes from one vendor to the other.",
        "model": first,
        "fallback_models": [second],
        "thinking_tokens": 1_024,
        "tools": ["list_files"],
        "prompt": "Try.",
    }
    assert (await stack.http.put("/agents/vendors-traveller", json=definition)).is_success
    return first, second


async def test_an_outage_moves_a_session_to_another_vendor_and_back(stack: Stack, pair: tuple[str, str]) -> None:
    first, second = pair
    there, here = (name.rpartition("/")[2] for name in pair)
    away = f"[[fault:529 retry_after=0 times=always at=2 model={there}]]"
    back = f"[[fault:529 retry_after=0 times=always at=4 model={here}]]" if not first.startswith("locked") else ""
    task_id = await stack.submit(f"[[script:count n=4]] {away} {back}", "vendors-traveller")
    record = await stack.wait(task_id)
    assert record["status"] == "completed", record["error"]
    events = await stack.events(task_id)
    used = of_type(events, "usage_updated")
    took = [second] * 5 if not back else [first, second, second, first, first]
    assert [event["model"] for event in used] == took
    switches = [(one["from_model"], one["to_model"]) for one in of_type(events, "model_switched")]
    assert switches == ([(first, second), (second, first)] if back else [(first, second)])
    assert record["usage"]["cost_usd"] == pytest.approx(sum(event["call"]["cost_usd"] for event in used), abs=1e-9)
    again = await reran(stack, task_id, recorded=True)
    assert again["status"] == "completed" and again["usage"]["cost_usd"] == 0
    results = [(await stack.result(one))["output"] for one in (task_id, again["task_id"])]
    assert results[0] == results[1]
