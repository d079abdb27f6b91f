"""The orchestrator on the real stack: three researchers in parallel, and one summary of real files."""

from datetime import datetime
from typing import Any

import pytest

from tests.support.stack import Stack, of_type

NOTES = {
    "crane.md": "The harbour needs a crane by May.\n",
    "money.md": "The harbour has 40,000 left.\n",
    "depth.txt": "The harbour is nine metres deep.\n",
    "people.md": "Two pilots serve the harbour.\n",
}


def seconds(record: dict[str, Any]) -> float:
    return (moment(record["ended_at"]) - moment(record["started_at"])).total_seconds()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def upload(stack: Stack, name: str, text: str) -> str:
    answer = await stack.http.post(
        "/files", params={"name": name}, content=text.encode(), headers={"Content-Type": "text/plain"}
    )
    file_id: str = answer.json()["file_id"]
    return file_id


@pytest.mark.proves("S0-38", "S0-18", "S0-06")
async def test_three_researchers_take_as_long_as_the_slowest(stack: Stack) -> None:
    files = [await upload(stack, name, text) for name, text in NOTES.items()]
    record = await stack.run("What do we know about the harbour?", "orchestrator", context={"files": files})
    task_id = record["task_id"]
    assert record["status"] == "completed", record
    result = await stack.result(task_id)
    for text in NOTES.values():
        assert text.strip() in result["output"]

    conversation = (await stack.http.get(f"/conversations/{record['conversation_id']}")).json()
    [root] = conversation["sessions"]
    children = [await stack.record(child["session_id"]) for child in root["children"]]
    assert [child["status"] for child in children] == ["completed"] * 3
    took = [seconds(child) for child in children]
    span = max(moment(child["ended_at"]) for child in children) - min(moment(child["started_at"]) for child in children)
    assert span.total_seconds() < max(took) + 1.0
    assert span.total_seconds() < 0.7 * sum(took)

    events = await stack.events(task_id)
    gathered = next(event for event in of_type(events, "tool_returned") if event["tool"] == "gather")
    last = max(moment(child["ended_at"]) for child in children)
    assert abs((moment(gathered["at"]) - last).total_seconds()) < 2.0
    assert len(of_type(events, "subagent_started")) == 3


async def test_orchestrator_reports_are_real_files_and_leave_nothing_to_fire(stack: Stack) -> None:
    record = await stack.run("Prepare a plan for the lighthouse", "orchestrator")  # an empty workspace
    result = await stack.result(record["task_id"])
    [summary] = [one for one in result["artifacts"] if one["name"] == "summary.md"]
    text = (await stack.http.get(summary["url"])).text
    assert "notes/goal.md" in text and "Prepare a plan for the lighthouse" in text
    reports = stack.workspace(record["task_id"]) / "reports"
    assert sorted(path.name for path in reports.iterdir()) == ["part-1.md", "part-2.md", "part-3.md"]
    mailbox = (await stack.http.get(f"/conversations/{record['conversation_id']}/mailbox")).json()
    assert mailbox["pending_count"] == 0
    fired = await stack.http.post(f"/conversations/{record['conversation_id']}/fire")
    assert fired.status_code == 422


async def test_part_of_a_stopped_researcher_is_assigned_again(stack: Stack) -> None:
    task_id = await stack.submit("Prepare a plan for the lighthouse", "orchestrator")
    started = await stack.seen(task_id, "subagent_started")
    await stack.cancel(started["child_session_id"], reason="lost")
    record = await stack.wait(task_id)
    assert record["status"] == "completed"
    events = await stack.events(task_id)
    again = [event for event in of_type(events, "tool_called") if event["tool"] == "task"]
    reasons = [event["reason"] for event in of_type(events, "replanning")]
    if again:  # the researcher was stopped before it had said anything
        assert any("Part " in reason for reason in reasons)
    assert "Part 1" in (await stack.result(task_id))["output"]
