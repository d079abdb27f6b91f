"""Quick tools: run within the workflow task, where one gets stuck it takes the long way; its end is told once."""

from base64 import b64encode
from pathlib import Path

import pytest
from temporalio.api.history.v1 import HistoryEvent

from activities.tools.tool import Tool
from domain.sessions.step import Effect
from tests.faults.ledger import Input
from tests.support.stack import Stack, calls, of_type, steps


def scheduled(events: list[HistoryEvent]) -> list[str]:
    """What went through the server's queue."""
    named = [event.activity_task_scheduled_event_attributes.activity_type.name for event in events]
    return [name for name in named if name]


async def history(stack: Stack, task_id: str) -> list[HistoryEvent]:
    return list((await stack.session(task_id).fetch_history()).events)


async def test_a_quick_tool_does_not_go_through_the_queue(stack: Stack) -> None:
    record = await stack.run(steps([("list_files", {"path": "."})], [("report_progress", {"message": "half"})]))
    assert (record["status"], record["usage"]["tool_invocations"]) == ("completed", 2)
    assert [event["message"] for event in of_type(await stack.events(record["task_id"]), "progress")] == ["half"]
    events = await history(stack, record["task_id"])
    assert scheduled(events) == ["call_model"] * 3 + ["finish_session"]
    markers = [event for event in events if event.marker_recorded_event_attributes.marker_name == "core_local_activity"]
    assert ["list" in str(one.user_metadata.summary.data) for one in markers] == [True, False]  # the timeline says what
    told = of_type(await stack.events(record["task_id"]), "tool_called", "tool_returned")
    assert [(event["type"], event["tool"]) for event in told] == [
        ("tool_called", "list_files"),
        ("tool_returned", "list_files"),
        ("tool_called", "report_progress"),
        ("tool_returned", "report_progress"),
    ]


async def test_one_that_is_slow_after_all_takes_the_long_way(stack: Stack, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    record = await stack.run(calls(("ledger_quick", {"path": str(ledger), "seconds": 30})))
    assert (record["status"], record["usage"]["tool_invocations"]) == ("completed", 1)
    assert scheduled(await history(stack, record["task_id"])) == [
        *("call_model", "tool.ledger_quick", "call_model", "finish_session")
    ]
    assert len(ledger.read_text().splitlines()) == 2
    told = of_type(await stack.events(record["task_id"]), "tool_called", "tool_returned")
    assert [(event["type"], event.get("state")) for event in told] == [("tool_called", None), ("tool_returned", "ok")]
    log = (stack.root / "logs" / "worker.log").read_text().splitlines()
    token = b64encode(b"local_act").decode()  # how the token of a local activity begins
    assert not [line for line in log if "heartbeat failed" in line and token in line]  # no beat where nobody listens


def test_what_must_not_be_repeated_cannot_be_quick() -> None:
    with pytest.raises(ValueError, match="dispatch: a quick tool may be run twice"):
        Tool(name="dispatch", description="Sends.", input=Input, effect=Effect.ONCE, quick=True)
