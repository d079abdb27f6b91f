"""Recorded histories replay on today's workflows: running sessions survive an upgrade, a breaking change is caught."""

import base64
import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from tests.histories.record import CONTINUED, EARLIER, FOLDER, FOUND, RENEWED, SCENARIOS
from tests.histories.stories import STORIES
from tests.unit.workflows.changed import CHANGED
from workflows.registry import WORKFLOWS, workflow_runner
from workflows.replay import replay

FILES = sorted(FOLDER.glob("*.json"))
ALL = FILES + sorted(EARLIER.glob("*.json"))
NAMES = [str(path.relative_to(FOLDER).with_suffix("")) for path in ALL]


def history(path: Path) -> WorkflowHistory:
    recorded = json.loads(path.read_text())
    return WorkflowHistory.from_json(recorded["id"], recorded["history"])


def replayer(workflows: list[type]) -> Replayer:
    return Replayer(workflows=workflows, workflow_runner=workflow_runner(), data_converter=pydantic_data_converter)


@pytest.mark.parametrize("path", ALL, ids=NAMES)
async def test_a_recorded_history_replays(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await replayer(list(WORKFLOWS)).replay_workflow(history(path))
    # what is raised beyond the last decision parts from no history, and would wedge the workflow all the same
    assert [record.message for record in caplog.records if "Failed activation" in record.message] == []


def test_every_scenario_is_recorded() -> None:
    recorded = {path.stem.partition(".")[0] for path in FILES}
    assert recorded == {*SCENARIOS, *STORIES, CONTINUED, RENEWED, *FOUND}
    for chain in (CONTINUED, RENEWED):
        assert len(list(FOLDER.glob(f"{chain}.*.json"))) >= 2


@pytest.mark.proves("S1-80", "F-14")
def test_every_workflow_is_recorded() -> None:
    """One that nobody recorded could be changed without anybody's noticing."""
    recorded = {
        history(path).events[0].workflow_execution_started_event_attributes.workflow_type.name for path in FILES
    }
    assert recorded == {workflow.__name__ for workflow in WORKFLOWS}


@pytest.mark.proves("S1-80")
async def test_where_a_local_activity_parts_is_named() -> None:
    """It leaves no scheduled activity, only a marker with its name inside."""
    document = json.loads((FOLDER / "replanning.json").read_text())
    events = document["history"]["events"]
    made = [event for event in events if "data" in event.get("markerRecordedEventAttributes", {}).get("details", {})]
    marker = made[-1]  # the first has the patch beside it
    [payload] = marker["markerRecordedEventAttributes"]["details"]["data"]["payloads"]
    written = json.loads(base64.b64decode(payload["data"]))
    payload["data"] = base64.b64encode(json.dumps({**written, "activity_type": "tool.other"}).encode()).decode()
    verdict = await replay(WorkflowHistory.from_json(document["id"], document["history"]))
    assert (verdict.same, verdict.event_id, verdict.event_type) == (False, int(marker["eventId"]), "marker_recorded")
    assert "'tool.other'" in str(verdict.reason) and "'tool.update_plan'" in str(verdict.reason)


@pytest.mark.proves("S1-80")
@pytest.mark.parametrize("word", ["bookkeeping", "told"])
async def test_what_an_older_worker_did_with_a_newer_ones_answer_replays(word: str) -> None:
    """In an upgrade: a newer worker ran the activity, an older one read its answer and took the old way."""
    document = json.loads((EARLIER / "tool_loop.json").read_text())
    changed = 0
    for event in document["history"]["events"]:
        for payload in event.get("activityTaskCompletedEventAttributes", {}).get("result", {}).get("payloads", []):
            written = json.loads(base64.b64decode(payload["data"]))
            known = written.get("calls", []) if word == "bookkeeping" else [written] if "committed" in written else []
            for one in known:
                one[word], changed = True, changed + 1
            payload["data"] = base64.b64encode(json.dumps(written).encode()).decode()
    assert changed
    verdict = await replay(WorkflowHistory.from_json(document["id"], document["history"]))
    assert verdict.same, verdict.reason


@pytest.mark.parametrize("path", ALL, ids=NAMES)
async def test_a_breaking_change_is_caught(path: Path) -> None:
    with pytest.raises(NondeterminismError):
        await replayer(CHANGED).replay_workflow(history(path))
