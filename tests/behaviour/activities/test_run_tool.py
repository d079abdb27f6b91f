"""Tool calls in the loop: parallel calls, refused calls, large outputs, plans, artifacts; no silent repetition."""

import asyncio
import json
import random
from base64 import b64encode
from pathlib import Path

import pytest
from temporalio.api.history.v1 import HistoryEvent

from domain.differences import CLOSELY, MOST_CHARACTERS, diff
from tests.support.locks import locked
from tests.support.stack import Stack, calls, eventually, of_type, steps

pytestmark = pytest.mark.together


@pytest.mark.proves("S1-24")
async def test_calls_of_one_reply_run_side_by_side(stack: Stack, tmp_path: Path) -> None:
    slow = {"path": str(tmp_path / "ledger"), "seconds": 1.5}
    record = await stack.run(calls(("ledger_again", slow), ("ledger_again", slow), ("list_files", {"path": "."})))
    assert record["status"] == "completed" and record["usage"]["tool_invocations"] == 3
    events = await stack.events(record["task_id"])
    order = [
        event["type"] for event in of_type(events, "tool_called", "tool_returned") if event["tool"] != "list_files"
    ]
    assert order == ["tool_called", "tool_called", "tool_returned", "tool_returned"]
    sent_back = (await stack.asked(record["task_id"]))[1]["body"]["messages"][-1]["content"]
    # the text is the note about the remaining budgets
    assert [block["type"] for block in sent_back] == ["tool_result"] * 3 + ["text"]


@pytest.mark.proves("S4-B01")
async def test_step_is_stored_before_the_next_one_begins_and_an_error_is_a_result(stack: Stack) -> None:
    """While the second model call hangs, the first reply and its tool results are already stored, and a tool's error is
    stored as its result. Afterwards the session runs to its end."""
    listed = steps([("explode", {"path": "x"}), ("list_files", {"path": "."})])
    task_id = await stack.submit(f"{listed} [[fault:hang at=2]]")
    await stack.seen(task_id, "step_started", step=2)
    kinds = [(node["kind"], node["step"]) for node in await stack.nodes(task_id)]
    assert kinds == [("user", 1), ("assistant", 1)]  # nothing of the second step is stored yet
    rows = await stack.pool.fetch(
        "SELECT tool, state FROM tool_calls WHERE session_id = $1 ORDER BY call_index", task_id
    )
    assert [(row["tool"], row["state"]) for row in rows] == [("explode", "failed"), ("list_files", "ok")]
    assert len(of_type(await stack.events(task_id), "step_started")) == 2
    await stack.cancel(task_id)
    await stack.wait(task_id)
    record = await stack.run(listed)
    assert record["status"] == "completed" and record["usage"]["llm_calls"] == 2
    shown = (await stack.asked(record["task_id"]))[1]["body"]["messages"][-1]["content"]
    assert [block["is_error"] for block in shown if block["type"] == "tool_result"] == [True, False]


async def test_model_learns_why_a_call_cannot_be_made(stack: Stack) -> None:
    record = await stack.run(
        calls(
            ("no_such_tool", {}),
            ("read_file", {"wrong": 1}),
            ("fetch_url", {"url": "http://127.0.0.1/"}),  # the tool exists, but not for this agent
            ("explode", {"path": "x"}),
        )
    )
    assert record["status"] == "completed"
    output = (await stack.result(record["task_id"]))["output"]
    assert "There is no tool 'no_such_tool'. You have: list_files" in output
    assert "The arguments of read_file do not fit; nothing was done." in output
    assert "There is no tool 'fetch_url'" in output
    assert "explode failed unexpectedly" in output and "secret-of-an-exception" not in output
    events = await stack.events(record["task_id"])
    assert {event["state"] for event in of_type(events, "tool_returned")} == {"failed"}
    assert "secret-of-an-exception" not in json.dumps(events)


@pytest.mark.proves("D17")
async def test_a_large_output_becomes_a_file_with_a_preview(stack: Stack) -> None:
    record = await stack.run(
        steps([("bash", {"command": "seq 1 120000"})], [("bash", {"command": "ls .outputs; wc -l .outputs/*"})])
    )
    assert record["status"] == "completed"
    [_, second, third] = await stack.asked(record["task_id"])
    [result, _] = second["body"]["messages"][-1]["content"]
    assert len(result["content"]) < 17_000
    assert result["content"].startswith("1\n2\n3\n") and "120000\n[exit code 0" in result["content"]
    assert "The whole output is in the file .outputs/bash-" in result["content"]
    assert "120000 .outputs/bash-" in json.dumps(third["body"]["messages"][-1])
    history = await stack.session(record["task_id"]).fetch_history()
    assert len(history.to_json()) < 60_000


@pytest.mark.proves("S1-23", "S1-45")
async def test_plans_are_followed_and_changed(stack: Stack) -> None:
    first = [{"title": "look", "status": "in_progress"}, {"title": "build", "status": "pending"}]
    second = [
        {"title": "look", "status": "done"},
        {"title": "repair", "status": "in_progress"},
        {"title": "build", "status": "pending"},
    ]
    record = await stack.run(
        steps(
            [("update_plan", {"steps": first})],
            [("update_plan", {"steps": second, "reason": "it was broken"})],
            [("bash", {"command": "false"})],
        )
    )
    assert record["progress"]["step"] == 2 and record["progress"]["total_steps"] == 3
    events = await stack.events(record["task_id"])
    assert [event["reason"] for event in of_type(events, "replanning")] == ["it was broken"]
    assert [len(event["steps"]) for event in of_type(events, "plan_updated")] == [2, 3]
    started = [event["description"] for event in of_type(events, "step_started")]
    assert started[1:3] == ["look", "repair"]  # each step has the title of its plan entry
    assert of_type(events, "tool_returned")[-1]["state"] == "failed"


@pytest.mark.proves("S1-25")
async def test_two_tasks_have_separate_workspaces(stack: Stack) -> None:
    write = [("bash", {"command": "echo mine > secret.txt; ls -a ..; cat /etc/hostname > /dev/null; pwd"})]
    look = [
        (
            "bash",
            {"command": "find / -xdev -name secret.txt 2>/dev/null; find . -name secret.txt -printf /workspace/%P"},
        )
    ]
    one, two = await asyncio.gather(stack.run(steps(write, look)), stack.run(steps(look)))
    mine = (await stack.result(one["task_id"]))["output"]
    assert "/workspace/secret.txt" in mine and one["task_id"] not in mine
    assert "secret.txt" not in (await stack.result(two["task_id"]))["output"]


def scheduled(events: list[HistoryEvent]) -> list[str]:
    """The activities that went through the server's queue."""
    named = [event.activity_task_scheduled_event_attributes.activity_type.name for event in events]
    return [name for name in named if name]


async def history(stack: Stack, task_id: str) -> list[HistoryEvent]:
    return list((await stack.session(task_id).fetch_history()).events)


async def test_only_bookkeeping_bypasses_the_queue(stack: Stack) -> None:
    look = [("list_files", {"path": "."}), ("read_file", {"path": "x"}), ("explode", {"path": "x"})]
    record = await stack.run(steps(look, [("report_progress", {"message": "half"}), ("no_such_tool", {})]))
    assert (record["status"], record["usage"]["tool_invocations"]) == ("completed", 5)
    assert [event["message"] for event in of_type(await stack.events(record["task_id"]), "progress")] == ["half"]
    await stack.session(record["task_id"]).result()  # its row has ended before its workflow
    events = await history(stack, record["task_id"])
    tools = ["tool.list_files", "tool.read_file", "tool.explode"]
    assert scheduled(events) == ["call_model", *tools, "call_model", "call_model", "finish_session"]
    summaries = [
        str(event.user_metadata.summary.data)
        for event in events
        if event.activity_task_scheduled_event_attributes.activity_type.name.startswith("tool.")
    ]
    assert ["list ." in summaries[0], "x" in summaries[1]] == [True, True]  # the timeline shows what each call does
    markers = [event for event in events if event.marker_recorded_event_attributes.marker_name == "core_local_activity"]
    summarised = {str(one.user_metadata.summary.data, "utf-8") for one in markers}
    assert summarised == {'"half"', '"unknown tool no_such_tool"'}
    emitted = of_type(await stack.events(record["task_id"]), "tool_called", "tool_returned")
    assert [event["type"] for event in emitted if event["tool"] == "report_progress"] == [
        "tool_called",
        "tool_returned",
    ]


@pytest.mark.together(False)
async def test_bookkeeping_that_takes_long_goes_through_the_queue(stack: Stack) -> None:
    async with locked(stack.pool, "tool_calls"):
        task_id = await stack.submit(calls(("report_progress", {"message": "half"})))

        async def queued() -> bool:
            return "tool.report_progress" in scheduled(await history(stack, task_id))

        await eventually(queued, what="the call goes through the queue")
    record = await stack.wait(task_id)
    assert (record["status"], record["usage"]["tool_invocations"]) == ("completed", 1)
    # the call did not fetch, scan or store a workspace in the workflow task either
    assert not (stack.settings.workspaces_dir / "default" / task_id).exists()
    emitted = of_type(await stack.events(task_id), "tool_called", "progress", "tool_returned")
    assert [event["type"] for event in emitted] == ["tool_called", "progress", "tool_returned"]
    log = (stack.root / "logs" / "worker.log").read_text().splitlines()
    token = b64encode(b"local_act").decode()  # the first bytes of a local activity's token
    # local activities have no heartbeat
    assert not [line for line in log if "heartbeat failed" in line and token in line]


@pytest.mark.parametrize("lines", [CLOSELY, 10 * CLOSELY])
def test_diff_is_limited_in_size_and_time(lines: int) -> None:
    """The limits apply to the size and, for texts that are hard to compare, to the time."""
    dice = random.Random(7)
    before, after = ("\n".join(str(dice.randrange(120)) for _ in range(lines)) for _ in range(2))
    shown = diff("a", before, after)
    assert len(shown) <= MOST_CHARACTERS + 40
    longer = diff("a", "", "x" * 79 + "\n" + "y\n" * 2 * MOST_CHARACTERS)
    assert longer.endswith(" more lines]") and len(longer) <= MOST_CHARACTERS + 40
