"""Recorded histories replay on today's workflows: running sessions survive an upgrade, a breaking change is caught."""

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from tests.histories.record import CONTINUED, FOLDER, FOUND, SCENARIOS
from tests.workflows.changed_session import ChangedSession
from workflows.registry import WORKFLOWS, workflow_runner
from workflows.session import Session

FILES = sorted(FOLDER.glob("*.json"))


def history(path: Path) -> WorkflowHistory:
    recorded = json.loads(path.read_text())
    return WorkflowHistory.from_json(recorded["id"], recorded["history"])


def replayer(workflows: list[type]) -> Replayer:
    return Replayer(workflows=workflows, workflow_runner=workflow_runner(), data_converter=pydantic_data_converter)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
async def test_a_recorded_history_replays(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await replayer(list(WORKFLOWS)).replay_workflow(history(path))
    # what is raised beyond the last decision parts from no history, and would wedge the workflow all the same
    assert [record.message for record in caplog.records if "Failed activation" in record.message] == []


def test_every_scenario_is_recorded() -> None:
    recorded = {path.stem.partition(".")[0] for path in FILES}
    assert recorded == {*SCENARIOS, "conversation", CONTINUED, *FOUND}
    assert len(list(FOLDER.glob(f"{CONTINUED}.*.json"))) >= 2


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.stem not in ("conversation", *FOUND)], ids=lambda path: path.stem
)
async def test_a_breaking_change_is_caught(path: Path) -> None:
    changed = [ChangedSession if workflow is Session else workflow for workflow in WORKFLOWS]
    with pytest.raises(NondeterminismError):
        await replayer(changed).replay_workflow(history(path))
