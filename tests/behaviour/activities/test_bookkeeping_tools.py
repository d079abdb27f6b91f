"""Bookkeeping runs within the workflow task; every other tool is an ordinary activity with a summary."""

from base64 import b64encode

from temporalio.api.history.v1 import HistoryEvent

from tests.support.locks import locked
from tests.support.stack import Stack, calls, eventually, of_type, steps


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
