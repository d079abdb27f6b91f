"""Recorded histories replay on the current workflows: running sessions survive upgrades; breaking changes are
caught."""

import functools
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.workflow import NondeterminismError

from tests.histories.mcp_scenarios import MCP_SCENARIOS
from tests.histories.record import CHAINS, FOLDER, SCENARIOS
from tests.histories.tree_scenarios import TREE_SCENARIOS
from tests.unit.workflows.changed import CHANGED
from workflows.registry import WORKFLOWS
from workflows.replay import new_replayer

FILES = sorted(FOLDER.glob("*.json"))


@functools.cache
def history(path: Path) -> WorkflowHistory:
    recorded = json.loads(path.read_text())
    return WorkflowHistory.from_json(recorded["id"], recorded["history"])


async def failures(workflows: list[type]) -> dict[str, Exception]:
    """Replay all recorded histories, in one replayer: the names of those that differ."""
    names = {(recorded := history(path)).run_id: (path.stem, recorded) for path in FILES}
    assert len(names) == len(FILES)

    async def all_of_them() -> AsyncIterator[WorkflowHistory]:
        for _, recorded in names.values():
            yield recorded

    found = await new_replayer(workflows).replay_workflows(all_of_them(), raise_on_replay_failure=False)
    return {names[run_id][0]: failure for run_id, failure in found.replay_failures.items()}


async def test_recorded_histories_replay(caplog: pytest.LogCaptureFixture) -> None:
    assert await failures(list(WORKFLOWS)) == {}
    # an exception after the last decision contradicts no history, but would fail the workflow task
    assert [record.message for record in caplog.records if "Failed activation" in record.message] == []


def test_every_scenario_is_recorded() -> None:
    recorded = {path.stem.partition(".")[0] for path in FILES}
    assert recorded == {*SCENARIOS, *TREE_SCENARIOS, *MCP_SCENARIOS, *CHAINS}
    for chain in CHAINS:
        assert len(list(FOLDER.glob(f"{chain}.*.json"))) >= 2


def test_every_workflow_is_recorded() -> None:
    """A breaking change of a workflow without a recorded history would not be noticed."""
    recorded = {
        history(path).events[0].workflow_execution_started_event_attributes.workflow_type.name for path in FILES
    }
    assert recorded == {workflow.__name__ for workflow in WORKFLOWS}


async def test_breaking_change_is_caught() -> None:
    found = await failures(CHANGED)
    assert {name for name, failure in found.items() if isinstance(failure, NondeterminismError)} == {
        path.stem for path in FILES
    }
