"""Two ways to cancel: let running tools finish within a time limit, or stop everything now."""

import asyncio
import time

import pytest

from tests.support.stack import Stack, calls, of_type

SLOW = "echo begun > begun; sleep 3; echo done > done"


async def working(stack: Stack, command: str = SLOW) -> str:
    task_id = await stack.submit(calls(("bash", {"command": command})))
    begun = stack.workspace(task_id) / "begun"
    while not await asyncio.to_thread(begun.exists):  # noqa: ASYNC110 - the sandbox makes the file
        await asyncio.sleep(0.05)
    return task_id


@pytest.mark.proves("S1-B05")
async def test_a_graceful_cancel_lets_the_tool_finish(stack: Stack) -> None:
    task_id = await working(stack)
    answer = await stack.cancel(task_id, mode="graceful", reason="enough")
    assert answer.status_code == 202 and answer.json()["cancel_requested"]["grace_ms"] == 60_000
    record = await stack.wait(task_id)
    assert (record["status"], record["reason"]) == ("cancelled", "caller_cancel")
    events = await stack.events(task_id)
    assert [event["state"] for event in of_type(events, "tool_returned")] == ["ok"]
    assert of_type(events, "cancel_requested")[0]["mode"] == "graceful"
    assert await asyncio.to_thread((stack.workspace(task_id) / "done").exists)
    assert len(await stack.asked(task_id)) == 1  # nothing ran after the tool


@pytest.mark.proves("S1-B05")
async def test_grace_period_ends_in_time_or_by_a_hard_cancel(stack: Stack) -> None:
    long = SLOW.replace("sleep 3", "sleep 50")
    runs_out, hardened = await asyncio.gather(working(stack, long), working(stack, long))
    began = time.monotonic()
    await stack.cancel(runs_out, mode="graceful", grace=1_000)
    await stack.cancel(hardened, mode="graceful")
    assert (await stack.cancel(hardened, mode="hard")).status_code == 202
    for task_id in (runs_out, hardened):
        assert (await stack.wait(task_id))["reason"] == "caller_cancel"
        assert [one["state"] for one in of_type(await stack.events(task_id), "tool_returned")] == ["cancelled"]
    assert time.monotonic() - began < 20


async def test_invalid_cancel_mode_is_refused(stack: Stack) -> None:
    task_id = await stack.submit("[[script:say text=x]]")
    for body, pointer in (
        ({"mode": "soft"}, "/mode"),
        ({"grace": 5}, "/grace"),
        ({"mode": "graceful", "grace": 0}, "/grace"),
    ):
        answer = await stack.cancel(task_id, **body)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert (await stack.wait(task_id))["status"] == "completed"
