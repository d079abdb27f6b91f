"""A limit ends a session with its reason and a summary, never silently."""

import asyncio
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from temporalio.testing import TimeSkipper

from tests.support.launch import TESTER
from tests.support.stack import Stack, calls, of_type

pytestmark = pytest.mark.together


@pytest.mark.proves("S1-60", "D10")
async def test_a_limit_ends_with_a_summary(stack: Stack) -> None:
    slow = '[[script:forever tool=bash input={"command": "sleep 0.2"}]]'
    limits: list[tuple[dict[str, Any], str, int | None]] = [
        ({"max_steps": 3}, "step_limit", 3),
        ({"max_tokens": 100}, "token_budget", 1),
        ({"max_cost_usd": 0.0001, "model": "claude-opus-4-5"}, "cost_budget", 1),
        ({"max_tool_calls": 3}, "tool_limit", 4),
        ({"ttl": 3_000}, "ttl", None),
    ]
    records = await asyncio.gather(*(stack.run(slow, config=config) for config, _, _ in limits))
    for record, (_, reason, count) in zip(records, limits, strict=True):
        assert (record["status"], record["reason"], record["partial"]) == ("failed", reason, True)
        if reason == "ttl":  # so short a time leaves half a second for the summary; the next test has enough
            continue
        assert (await stack.result(record["task_id"]))["output"].startswith("Summary:")
        asked = await stack.asked(record["task_id"])
        if count is not None:
            assert len(asked) == count + 1 == record["usage"]["llm_calls"]
        assert "tools" not in asked[-1]["body"]
        assert "ends now" in str(asked[-1]["body"]["messages"][-1])


def lateness(record: dict[str, Any]) -> timedelta:
    return datetime.fromisoformat(record["ended_at"]) - datetime.fromisoformat(record["deadline"])


@pytest.mark.proves("S1-07", "D10")
async def test_a_short_ttl_reaches_a_model_that_hangs_and_its_summary_fits(stack: Stack) -> None:
    record = await stack.run("[[script:say words=30]] [[fault:hang after=4]]", config={"ttl": 10_000})
    assert (record["status"], record["reason"], record["partial"]) == ("failed", "ttl", True)
    assert timedelta(seconds=-4) < lateness(record) < timedelta(seconds=2)
    messages = of_type(await stack.events(record["task_id"]), "message")
    assert [message["interrupted"] for message in messages] == [True, False]


HANGS = "[[script:say words=30]] [[fault:hang after=4 times=always]]"
FOREVER = '[[script:forever tool=bash input={"command": "true"}]] [[fault:hang after=0 at=2 times=always]]'


async def test_session_ends_with_its_time_whatever_it_does(stack: Stack) -> None:
    for name, role in (("helper-in-time", {"mode": "subagent"}), ("in-time", {"subagents": ["helper-in-time"]})):
        assert (await stack.http.put(f"/agents/{name}", json={**TESTER, **role, "name": name})).is_success
    config = {"ttl": 4_000}
    tool, task = ("ledger_again", {"path": "/dev/null", "seconds": 60, "deaf": True}), {"agent": "helper-in-time"}
    run = partial(stack.run, agent="in-time")
    *late, summary = await asyncio.gather(
        run(HANGS, config=config),
        run(calls(tool), config=config),
        run("[[script:say]]", acceptance_criteria=[{"kind": "command", "run": "sleep 60"}], config=config),
        run(calls(("task", {**task, "prompt": HANGS, "description": "x"})), config=config),
        run(FOREVER, config={**config, "max_steps": 1}),
    )
    assert [record["reason"] for record in late] == ["ttl"] * 4 and summary["reason"] == "step_limit"
    for record in (*late, summary):
        assert record["status"] == "failed"
        assert timedelta(seconds=-2) < lateness(record) < timedelta(seconds=2)


@pytest.mark.proves("S1-60")
async def test_hours_of_retries_end_at_the_deadline(stack: Stack) -> None:
    """The model is overloaded for an hour of skipped workflow time; the deadline is by the clock of acceptance."""
    overloaded = "[[script:say text=late]] [[fault:529 retry_after=300 times=12]]"
    task_id = await stack.submit(overloaded, config={"ttl": 3_590_000})
    await stack.seen(task_id, "model_retry")
    await TimeSkipper(stack.client).fast_forward(stack.session(task_id))
    record = await stack.wait(task_id)
    # the skipped time may pass the deadline before the timer fires, and then there is no summary
    assert (record["status"], record["reason"]) == ("failed", "ttl")
    assert len(of_type(await stack.events(task_id), "model_retry")) == 12  # every five minutes, up to the deadline
