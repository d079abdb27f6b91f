"""A cancel stops running calls and keeps results; once it is accepted, the only possible end is `cancelled`."""

import asyncio
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.stack import Stack, calls, eventually, of_type

HANGS = "[[script:say words=30]] [[fault:hang after=6]]"


@pytest.mark.proves("S1-44")
async def test_cancel_reaches_a_running_model_call(stack: Stack) -> None:
    task_id = await stack.submit(HANGS)
    await stack.seen(task_id, "message_delta")
    began = time.monotonic()
    answer = await stack.cancel(task_id, reason="no longer needed")
    assert answer.status_code == 202
    record = await stack.wait(task_id)
    assert time.monotonic() - began < 8  # 0.5 s on an idle machine; without the push, the heartbeat's 10 s
    assert (record["status"], record["reason"], record["partial"]) == ("cancelled", "caller_cancel", True)
    assert record["cancel_requested"]["note"] == "no longer needed"
    assert (await stack.result(task_id))["output"].startswith("word1 word2")
    [message] = of_type(await stack.events(task_id), "message")
    assert message["interrupted"]

    async def left() -> bool:
        return [request["outcome"] for request in await stack.asked(task_id)] == ["disconnected"]

    await eventually(left, seconds=5, what="the model's connection was closed")
    assert len(await stack.asked(task_id)) == 1


async def test_cancel_ends_a_running_command(stack: Stack) -> None:
    odd = f"{random.randint(10_000, 99_999)}.5"
    task_id = await stack.submit(calls(("bash", {"command": f"sleep {odd} & sleep {odd}"})))

    async def running() -> bool:
        return await asyncio.to_thread(_processes, odd) >= 2

    await eventually(running, what="the command runs")
    await stack.cancel(task_id)
    record = await stack.wait(task_id)
    assert (record["status"], record["reason"]) == ("cancelled", "caller_cancel")
    [returned] = of_type(await stack.events(task_id), "tool_returned")
    assert returned["state"] == "cancelled"

    async def gone() -> bool:
        return await asyncio.to_thread(_processes, odd) == 0

    await eventually(gone, seconds=5, what="no process is left")
    assert [node["kind"] for node in await stack.nodes(task_id)] == ["user", "assistant", "tool_results"]


def _processes(argument: str) -> int:
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes().split(b"\0")[:2] == [b"sleep", argument.encode()]
        except OSError:
            continue
    return found


@pytest.mark.parametrize("limit", [{"ttl": 4_000}, {"max_steps": 1}], ids=str)
@pytest.mark.parametrize("by", ["api", "temporal"])
async def test_cancel_during_the_closing_summary_counts(stack: Stack, limit: dict[str, int], by: str) -> None:
    """Whichever limit asked for the summary: the cancel is accepted, so the task ends as cancelled. Temporal's own
    cancel is in no row, so that only the workflow knows it."""
    script = calls(("bash", {"command": "sleep 30"})) if "ttl" in limit else "[[script:forever]]"
    task_id = await stack.submit(f"{script} [[fault:hang at=2 after=1]]", config=limit)
    await stack.seen(task_id, "message_delta")  # of the summary, as the steps before it only call tools
    if by == "api":
        answer = await stack.cancel(task_id, reason="enough")
        assert answer.status_code == 202 and answer.json()["cancel_requested"]["note"] == "enough"
    else:
        await stack.session(task_id).cancel()
    record = await stack.wait(task_id)
    assert (record["status"], record["reason"]) == ("cancelled", "caller_cancel")
    assert [event["type"] for event in await stack.events(task_id)][-1] == "task_cancelled"


@pytest.mark.proves("F-14", "S1-18")
async def test_cancel_against_completion_has_one_winner(stack: Stack) -> None:
    """Races: after an accepted cancel the task ends cancelled, a late one changes nothing, and all sources agree."""

    async def undisturbed() -> float:
        began = time.monotonic()
        await stack.wait(await stack.submit("[[script:say text=done]]"))
        return time.monotonic() - began

    async def race(pause: float) -> tuple[int, str]:
        task_id = await stack.submit("[[script:say text=done]]")
        await asyncio.sleep(pause)
        accepted = (await stack.cancel(task_id)).status_code
        record = await stack.wait(task_id)
        outcome = await stack.session(task_id).result()
        assert outcome["status"] == record["status"] == (await stack.events(task_id))[-1]["status"]
        return accepted, record["status"]

    span = max(await asyncio.gather(*(undisturbed() for _ in range(10))))  # the time that an undisturbed task takes
    seen: Counter[tuple[int, str]] = Counter()
    # until both outcomes were seen, however busy the machine is
    while len(seen) < 2 and seen.total() < 200:
        outcomes = await asyncio.gather(*(race(number * span / 20) for number in range(25)))
        seen.update(outcomes)
        span *= 2 if (200, "completed") not in outcomes else 0.5 if (202, "cancelled") not in outcomes else 1
    assert set(seen) == {(202, "cancelled"), (200, "completed")}


async def test_cancel_without_a_worker_is_honoured_later(stack: Stack) -> None:
    working = await stack.submit(HANGS)
    await stack.seen(working, "message_delta")
    worker = stack.pid("worker")
    with stack.frozen_supervisor():
        stack.signal("worker", signal.SIGKILL)
        waiting = await stack.submit("[[script:say text=never]]")
        for task_id in (working, waiting):
            answer = await stack.cancel(task_id)
            assert answer.status_code == 202
            assert answer.json()["status"] in ("submitted", "working") and answer.json()["cancel_requested"]
    await stack.back("worker", worker)
    for task_id in (working, waiting):
        record = await stack.wait(task_id)
        assert (record["status"], record["reason"]) == ("cancelled", "caller_cancel")
    assert await stack.asked(waiting) == []
