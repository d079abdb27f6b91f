"""Each kind of anomaly emits one event."""

import asyncio

import pytest

from tests.support.stack import Stack, of_type


@pytest.mark.proves("S1-26")
async def test_errors_and_denials_each_raise_one_event(bounded: Stack) -> None:
    failing = '[[script:count n=11 tool=read_file input={"path": "nowhere"}]]'
    errors, denials = await asyncio.gather(bounded.run(failing), bounded.run(failing, "fenced"))
    assert errors["reason"] == denials["reason"] == "goal_reached"
    [event] = of_type(await bounded.events(errors["task_id"]), "anomaly")
    assert (event["kind"], event["value"], event["threshold"]) == ("error_rate", 1.0, 0.5)
    found = of_type(await bounded.events(denials["task_id"]), "anomaly")
    assert [(one["kind"], one["value"]) for one in found] == [("denied_calls", 5.0), ("error_rate", 1.0)]


async def test_fast_spending_raises_one_event(bounded: Stack) -> None:
    """A reply of fifty thousand tokens by the most expensive model costs over a dollar, within the first minute."""
    record = await bounded.run("[[script:count n=3 grow=200000]]", config={"model": "claude-fable-5-1"})
    assert record["reason"] == "goal_reached" and record["usage"]["cost_usd"] > 1
    [event] = of_type(await bounded.events(record["task_id"]), "anomaly")
    assert (event["kind"], event["threshold"]) == ("spend_rate", 1.0) and event["value"] > 1
