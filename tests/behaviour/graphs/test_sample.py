"""The sample agent asset_subagent with its worker and reviewer: as a task, as a subagent, and in the views."""

import json

import pytest
from click import unstyle
from errand.models import Trace
from temporalio.api.common.v1 import Payload

from cli.render.traces import trace_lines
from tests.support.stack import Stack, of_type

SUMMARY = "oak-tree.svg: a top-down asset of 64 by 64 units, checked for size, view and text."


def decoded(payload: Payload) -> str:
    return str(json.loads(payload.data)) if payload.data else ""


@pytest.mark.proves("S4-34")
async def test_the_worker_draws_and_the_reviewer_hands_over(stack: Stack) -> None:
    task_id = await stack.submit("Oak tree", agent="asset_subagent")
    record = await stack.wait(task_id)
    assert (record["status"], record["reason"]) == ("completed", "goal_reached")
    result = await stack.result(task_id)
    assert result["output"] == SUMMARY
    assert [artifact["name"] for artifact in result["artifacts"]] == ["oak-tree.svg"]
    events = await stack.events(task_id)
    assert [event["message"] for event in of_type(events, "progress")] == ["Reviewing oak-tree.svg"]
    speakers = [(event.get("speaker"), event.get("side", "a")) for event in of_type(events, "message")]
    assert speakers == [("Worker", "a"), ("Worker", "a"), ("Reviewer", "b"), ("Reviewer", "b")]
    began = [event["description"].partition(":")[0] for event in of_type(events, "step_started")]
    assert began == ["Worker", "Worker", "Reviewer", "Reviewer"]
    history = [decoded(one.user_metadata.summary) async for one in stack.session(task_id).fetch_history_events()]
    asked = [summary.split(" · ")[:2] for summary in history if summary.startswith("turn")]
    assert asked == [["turn 1", "Worker"], ["turn 2", "Worker"], ["turn 3", "Reviewer"], ["turn 4", "Reviewer"]]
    trace = (await stack.http.get(f"/tasks/{task_id}/trace")).json()
    assert [(step.get("speaker"), step.get("side", "a")) for step in trace["steps"]] == speakers
    session = (await stack.http.get(f"/sessions/{task_id}", params={"full": "true"})).json()
    said = [(one["author"], one.get("side", "a")) for one in session["display_messages"] if one["type"] == "assistant"]
    assert said == [("Worker", "a"), ("Worker", "a"), ("Reviewer", "b"), ("Reviewer", "b")]
    shown = unstyle("\n".join(trace_lines(Trace.model_validate(trace))))
    assert "step 1 Worker" in shown and "step 4 Reviewer" in shown
