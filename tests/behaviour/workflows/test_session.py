"""The ends of a session: each has its reason, and the record, the stream and Temporal agree about it."""

import asyncio
import json
from typing import Any

import pytest

from domain.ids import is_id
from tests.support.stack import Stack, calls, of_type, steps

pytestmark = pytest.mark.together


@pytest.mark.proves("S1-02", "S1-16")
async def test_completed_session_has_reached_its_goal(stack: Stack) -> None:
    task_id = await stack.submit("[[script:count n=2]]")
    handle = await stack.record(task_id)  # the handle alone is enough, immediately
    assert is_id(task_id) and handle["task_id"] == task_id
    record = await stack.wait(task_id)
    assert (record["status"], record["reason"], record["partial"]) == ("completed", "goal_reached", False)
    assert record["usage"]["llm_calls"] == 3 and record["usage"]["tool_invocations"] == 2
    result = await stack.result(task_id)
    assert result["output"].startswith("Counted 2 steps.")
    ended = (await stack.events(task_id))[-1]
    assert (ended["type"], ended["reason"], ended["output"]) == ("task_completed", "goal_reached", result["output"])
    outcome = await stack.session(task_id).result()
    assert (outcome["status"], outcome["reason"], outcome["steps"]) == ("completed", "goal_reached", 3)


@pytest.mark.proves("S1-11", "S1-12", "S1-45")
async def test_events_describe_the_session_in_order(stack: Stack) -> None:
    task_id = await stack.submit(
        steps([("report_progress", {"message": "half way", "percent": 50})], [("list_files", {"path": "."})])
    )
    await stack.wait(task_id)
    events = await stack.events(task_id)
    kinds = ("task_submitted", "task_started", "step_started", "tool_called", "progress", "step_completed")
    order = [(event["type"], event.get("step")) for event in of_type(events, *kinds)]
    assert order == [
        ("task_submitted", None),
        ("task_started", None),
        ("step_started", 1),
        ("tool_called", None),
        ("progress", None),
        ("step_completed", 1),
        ("step_started", 2),
        ("tool_called", None),
        ("step_completed", 2),
        ("step_started", 3),
        ("step_completed", 3),
    ]
    [progress] = of_type(events, "progress")
    assert progress["message"] == "half way (50 %)"
    assert of_type(events, "tool_called")[1]["tool"] == "list_files"
    assert of_type(events, "step_completed")[0]["result"] == "report_progress ok"
    record = await stack.record(task_id)
    assert record["created_at"] <= record["started_at"] <= record["updated_at"] == record["ended_at"]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("[[fault:auth]]", "authentication_error"),
        ("[[fault:400]]", "invalid_request_error"),
        ("[[script:say stop=refusal text=no]]", "refusal"),
    ],
)
@pytest.mark.proves("S1-07", "S1-17")
async def test_permanent_errors_fail_the_session(stack: Stack, fault: str, error: str) -> None:
    record = await stack.run(fault)
    assert (record["status"], record["reason"]) == ("failed", "error")
    assert record["error"]["type"] == error and record["error"]["message"]
    assert len(await stack.asked(record["task_id"])) == 1
    assert (await stack.events(record["task_id"]))[-1]["error"] == record["error"]["message"]


@pytest.mark.proves("S1-53", "S1-01")
async def test_context_reaches_the_agent(stack: Stack) -> None:
    first = await stack.run('[[script:say text="The word is heliotrope."]]')
    file = await stack.http.post(
        "/files", params={"name": "notes.txt"}, content=b"from the caller", headers={"Content-Type": "text/plain"}
    )
    assert file.is_success, file.text
    context = {
        "files": [file.json()["file_id"]],
        "notes": ["the parser was rewritten"],
        "environment": {"branch": "topaz"},
        "history_session": first["task_id"],
        "history": [
            {"role": "user", "content": "earlier question"},
            {"role": "assistant", "content": "earlier answer"},
        ],
    }
    task_id = await stack.submit(
        calls(("read_file", {"path": "notes.txt"})),
        context=context,
        acceptance_criteria=["it is green"],
        constraints=["touch nothing"],
    )
    record = await stack.wait(task_id)
    assert record["status"] == "completed" and record["parent_session_id"] == first["task_id"]
    assert "from the caller" in (await stack.result(task_id))["output"]
    request = json.dumps((await stack.asked(task_id))[0]["body"]["messages"])
    expected = (
        "heliotrope",
        "earlier question",
        "earlier answer",
        "topaz",
        "rewritten",
        "it is green",
        "touch nothing",
    )
    assert [word for word in expected if word not in request] == []


@pytest.mark.proves("D16", "S1-03")
async def test_many_sessions_run_side_by_side(stack: Stack, tmp_path: Any) -> None:
    """Each session would take 3 seconds alone; none waits for another, and no client is connected."""
    slow = calls(("ledger_again", {"path": str(tmp_path / "ledger"), "seconds": 3}))
    ids = await asyncio.gather(*(stack.submit(slow) for _ in range(20)))
    records = await asyncio.gather(*(stack.wait(task_id) for task_id in ids))
    assert {record["status"] for record in records} == {"completed"}
    held = [(event["at"], +1) for i in ids for event in of_type(await stack.events(i), "tool_called")]
    held += [(event["at"], -1) for i in ids for event in of_type(await stack.events(i), "tool_returned")]
    together = most = 0
    for _, change in sorted(held):
        together += change
        most = max(most, together)
    assert most >= 10, "sessions ran one after the other"
