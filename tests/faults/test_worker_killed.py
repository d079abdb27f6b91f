"""kill -9 of the worker: during a model call, during a tool call, and between a commit and its acknowledgement."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.behaviour.conversations.talk import Gate, agent, async_task, chain
from tests.behaviour.graphs.duet import prompt
from tests.faults.damage import lines
from tests.support.locks import locked, waiting_for
from tests.support.stack import Stack, calls, eventually, of_type

# a criterion whose command has ended when the worker is killed, and one whose command runs then
FIRST = {"kind": "command", "run": "echo x >> first"}
SECOND = {"kind": "command", "run": "echo x >> second; test $(wc -l < second) = 2 || sleep 60"}


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("ledgers")
    return {name: folder / name for name in ("once", "again", "command", "turns")}


@pytest_asyncio.fixture(scope="module")
async def survivors(stack: Stack, ledgers: dict[str, Path]) -> AsyncIterator[dict[str, str]]:
    """Kill the worker once while several sessions run, each at a different point."""
    once, again = str(ledgers["once"]), str(ledgers["again"])
    handled = {
        "name": "handled",
        "description": "A model and a handler.",
        "side_a": {"prompt": "player"},
        "side_b": {"handler": "metronome"},
        "prompts": {"player": prompt("player", "One.")},
        "variables": {name: {"description": "x", "required": False} for name in ("BEATS", "SECONDS", "LEDGER")},
        "env": {"BEATS": "1", "SECONDS": "4", "LEDGER": str(ledgers["turns"])},
    }
    await stack.define(handled)
    tasks = {
        "thinking": await stack.submit("[[script:say words=30]] [[fault:hang after=6]]"),
        "once": await stack.submit(calls(("ledger_once", {"path": once, "seconds": 50}))),
        "again": await stack.submit(calls(("ledger_again", {"path": again, "seconds": 3}))),
        "command": await stack.submit(calls(("bash", {"command": "echo begun > begun.txt; sleep 54321.5"}))),
        "handled": await stack.submit("Go.", "handled"),
        "checked": await stack.submit("[[script:say text=Done.]]", acceptance_criteria=[FIRST, SECOND]),
    }
    await stack.seen(tasks["thinking"], "message_delta")
    for name in ("once", "again", "command"):
        await stack.seen(tasks[name], "tool_called")
    await eventually(lambda: lines(ledgers["once"]))
    await eventually(lambda: lines(ledgers["again"]))
    await eventually(lambda: lines(ledgers["turns"]))
    await eventually(lambda: lines(stack.workspace(tasks["command"]) / "begun.txt"))
    await eventually(lambda: lines(stack.workspace(tasks["checked"]) / "second"))
    # last, because a local activity has little time before it is retried
    async with locked(stack.pool, "tool_calls"):
        tasks["bookkeeping"] = await stack.submit(calls(("report_progress", {"message": "half"})))
        await eventually(lambda: waiting_for(stack.pool, "tool_calls"))
        killed = await stack.kill("worker")
    await stack.back("worker", killed)
    yield tasks


async def test_a_model_call_is_made_again(stack: Stack, survivors: dict[str, str]) -> None:
    record = await stack.wait(survivors["thinking"])
    assert (record["status"], record["usage"]["llm_calls"]) == ("completed", 1)
    events = await stack.events(survivors["thinking"])
    kinds = [event["type"] for event in events if event["type"] != "message_delta"]
    assert kinds.count("message") == kinds.count("attempt_reset") == kinds.count("step_started") == 1
    reset = next(event["seq"] for event in events if event["type"] == "attempt_reset")
    streamed = "".join(event["text"] for event in of_type(events, "message_delta") if event["seq"] > reset)
    assert streamed == of_type(events, "message")[0]["text"]  # the deltas after the reset are the whole message
    assert [node["kind"] for node in await stack.nodes(survivors["thinking"])] == ["user", "assistant"]


async def test_once_tool_is_not_repeated_and_the_model_learns_of_it(
    stack: Stack, survivors: dict[str, str], ledgers: dict[str, Path]
) -> None:
    record = await stack.wait(survivors["once"])
    assert record["status"] == "completed"
    assert len(await lines(ledgers["once"])) == 1
    [returned] = of_type(await stack.events(survivors["once"]), "tool_returned")
    assert returned["state"] == "unknown"
    sent_back = str((await stack.asked(survivors["once"]))[1]["body"]["messages"][-1])
    assert "The outcome of this call is unknown" in sent_back and "It was not repeated" in sent_back


async def test_an_idempotent_tool_is_repeated(
    stack: Stack, survivors: dict[str, str], ledgers: dict[str, Path]
) -> None:
    record = await stack.wait(survivors["again"])
    assert (record["status"], record["usage"]["tool_invocations"]) == ("completed", 1)
    [first, second] = [line.split() for line in await lines(ledgers["again"])]
    assert first[0] == second[0] and (first[1], second[1]) == ("False", "True")  # one key; the second knows it repeats
    events = await stack.events(survivors["again"])
    assert [event["state"] for event in of_type(events, "tool_returned")] == ["ok"]
    assert len(of_type(events, "tool_called")) == 1


async def test_turn_of_a_handler_is_taken_again_and_recorded_once(
    stack: Stack, survivors: dict[str, str], ledgers: dict[str, Path]
) -> None:
    assert (await stack.wait(survivors["handled"]))["status"] == "completed"
    assert (await stack.result(survivors["handled"]))["output"] == "Enough after 1."
    tried = [line.split()[0] for line in await lines(ledgers["turns"])]
    assert len(tried) == 2 and len(set(tried)) == 1  # two attempts, one key
    assert len([node for node in await stack.nodes(survivors["handled"]) if node["kind"] == "assistant"]) == 2


async def test_criterion_whose_verdict_is_committed_is_not_checked_again(
    stack: Stack, survivors: dict[str, str]
) -> None:
    record = await stack.wait(survivors["checked"])
    assert (record["status"], record["reason"]) == ("completed", "goal_reached")
    ran = [len(await lines(stack.workspace(survivors["checked"]) / name)) for name in ("first", "second")]
    assert ran == [1, 2]  # the second one's command died with its worker
    [event] = of_type(await stack.events(survivors["checked"]), "acceptance_checked")
    assert (event["round"], [one["passed"] for one in event["verdicts"]]) == (1, [True, True])
    effects = (await stack.result(survivors["checked"]))["effects"]
    assert [(one["tool"], one["state"]) for one in effects] == [("acceptance", "done")] * 2


async def test_bookkeeping_is_repeated_and_emitted_once(stack: Stack, survivors: dict[str, str]) -> None:
    record = await stack.wait(survivors["bookkeeping"])
    assert (record["status"], record["usage"]["tool_invocations"]) == ("completed", 1)
    events = of_type(await stack.events(survivors["bookkeeping"]), "tool_called", "progress", "tool_returned")
    assert [event["type"] for event in events] == ["tool_called", "progress", "tool_returned"]


async def test_a_command_dies_with_its_worker(stack: Stack, survivors: dict[str, str]) -> None:
    record = await stack.wait(survivors["command"])
    assert record["status"] == "completed"
    assert "outcome of this call is unknown" in (await stack.result(survivors["command"]))["output"]
    commands = await asyncio.to_thread(
        lambda: [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    )
    assert not [command for command in commands if b"54321.5" in command]


@pytest.mark.proves("D12")
async def test_committed_step_is_not_paid_for_twice(stack: Stack, tmp_path: Path) -> None:
    """Temporal is frozen while a reply, an effect and the start of a subagent are committed; the worker is killed
    before it can report them."""
    ledger, gate = tmp_path / "ledger", Gate()
    await stack.define(agent("woken", mode="subagent"), agent("waking", {"agent": "woken", "delivery": "wake"}))
    effect = await stack.submit(calls(("ledger_once", {"path": str(ledger), "seconds": 3})))
    await eventually(lambda: lines(ledger))
    silent = f"{gate.then('Woken.')} [[fault:slow delay=4]]"  # so that its start is committed after the lock
    parent = await stack.submit(chain([async_task(silent, "woken")], last="Off."), "waking")
    await stack.seen(parent, "tool_called", tool="async_task")
    async with locked(stack.pool, "tool_calls"):
        reply = await stack.submit("[[script:say words=12 delay=0.3]]")
        await stack.seen(reply, "message_delta")
        await eventually(lambda: waiting_for(stack.pool, "tool_calls"))
        worker = stack.pid("worker")
        assert not of_type(await stack.events(parent), "tool_returned")
        stack.signal("temporal", signal.SIGSTOP)
    try:
        await stack.seen(reply, "message")  # committed
        await stack.seen(effect, "tool_returned", state="ok")
        await stack.seen(parent, "tool_returned", state="ok")
        await stack.kill("worker")
    finally:
        stack.signal("temporal", signal.SIGCONT)
    await stack.back("worker", worker)
    await stack.seen(parent, "message", text="Off.")
    gate.open()
    woken = await stack.wait(parent)
    assert (woken["status"], woken["usage"]["llm_calls"]) == ("completed", 3), "it has waited for its subagent"
    assert len(of_type(await stack.events(parent), "subagent_started")) == 1
    for task_id, requests in ((reply, 1), (effect, 2)):
        record = await stack.wait(task_id)
        assert (record["status"], record["usage"]["llm_calls"]) == ("completed", requests)
        assert len(await stack.asked(task_id)) == requests
        await _whole(stack, task_id)
    assert len(await lines(ledger)) == 1
    assert [node["kind"] for node in await stack.nodes(reply)] == ["user", "assistant"]
    kinds = [event["type"] for event in await stack.events(reply) if event["type"] != "message_delta"]
    assert kinds == [
        *("task_submitted", "task_started", "step_started", "message", "usage_updated"),
        *("step_completed", "task_completed"),
    ]


async def _whole(stack: Stack, task_id: str) -> None:
    nodes: list[dict[str, Any]] = await stack.nodes(task_id)
    assert len({node["idem"] for node in nodes}) == len(nodes)
    assert len([node for node in nodes if node["kind"] == "user"]) == 1
