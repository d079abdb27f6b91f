"""The ledger: every call with an effect is listed with its end, even if the run itself failed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack import Stack, calls, eventually, steps

pytestmark = pytest.mark.exactly_once

WRITE = ("write_file", {"path": "a.txt", "content": "one\n"})


async def effects(stack: Stack, task_id: str) -> list[dict[str, Any]]:
    answer = await stack.http.get(f"/tasks/{task_id}/effects")
    assert answer.status_code == 200, answer.text
    listed: list[dict[str, Any]] = answer.json()["items"]
    return listed


def shown(listed: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(entry["kind"], entry["state"], entry["description"]) for entry in listed]


@pytest.mark.proves("S1-73")
async def test_effects_are_listed_with_their_keys(recorded: Stack) -> None:
    plan = ("update_plan", {"steps": [{"title": "look"}]})
    record = await recorded.run(
        steps([plan, ("read_file", {"path": "none"})], [WRITE], [("bash", {"command": "exit 3"})])
    )
    listed = (await recorded.result(record["task_id"]))["effects"]
    assert shown(listed) == [("file", "done", "write a.txt (4 characters)"), ("command", "failed", "$ exit 3")]
    keys = await recorded.pool.fetch(
        "SELECT node || ':' || call_index AS key FROM tool_calls WHERE session_id = $1 AND effect <> 'read'",
        record["task_id"],
    )
    assert {entry["idempotency_key"] for entry in listed} < {row["key"] for row in keys}
    assert all(entry["started_at"] <= entry["ended_at"] for entry in listed)
    assert listed == await effects(recorded, record["task_id"])


@pytest.mark.proves("S1-73")
async def test_cancelled_run_lists_its_effects_and_those_with_unknown_outcome(recorded: Stack, tmp_path: Path) -> None:
    slow = ("ledger_once", {"path": str(tmp_path / "ledger"), "seconds": 30})
    task_id = await recorded.submit(steps([WRITE], [slow]))

    async def running() -> bool:
        return [entry["state"] for entry in await effects(recorded, task_id)] == ["done", "running"]

    await eventually(running, what="the second call runs")
    await recorded.cancel(task_id)
    assert (await recorded.wait(task_id))["status"] == "cancelled"
    listed = (await recorded.result(task_id))["effects"]
    assert [(entry["tool"], entry["state"]) for entry in listed] == [
        ("write_file", "done"),
        ("ledger_once", "unknown"),
    ]


@pytest.mark.proves("S1-73")
async def test_failed_run_lists_its_own_effects_and_those_of_its_subagents(recorded: Stack) -> None:
    task = ("task", {"agent": "record-helper", "prompt": calls(WRITE), "description": "write"})
    record = await recorded.run(steps([task], [("bash", {"command": "true"})]), "record-lead", config={"max_steps": 2})
    assert (record["status"], record["reason"]) == ("failed", "step_limit")
    listed = (await recorded.result(record["task_id"]))["effects"]
    assert [(entry["kind"], entry["state"]) for entry in listed] == [
        ("subagent", "done"),
        ("file", "done"),
        ("command", "done"),
    ]
    assert len({entry["session_id"] for entry in listed}) == 2


@pytest.mark.proves("S1-64")
async def test_a_dry_run_describes_and_does_nothing(recorded: Stack, tmp_path: Path) -> None:
    payment = ("ledger_once", {"path": str(tmp_path / "ledger"), "seconds": 0})
    command = ("bash", {"command": "touch b.txt"})
    save = ("save_artifact", {"path": "a.txt"})
    task = ("task", {"agent": "record-helper", "prompt": calls(WRITE, payment), "description": "write"})
    script = steps([("list_files", {"path": "."})], [WRITE, command, payment, save], [task])
    record = await recorded.run(script, "record-lead", config={"dry_run": True})
    assert record["status"] == "completed" and record["dry_run"] is True
    result = await recorded.result(record["task_id"])
    listed = [(entry["tool"], entry["state"]) for entry in result["effects"]]
    assert sorted(listed) == [
        *[("bash", "would_have")],
        *[("ledger_once", "would_have")] * 2,
        *[("save_artifact", "would_have")],
        *[("task", "done")],
        *[("write_file", "would_have")] * 2,
    ]
    assert result["artifacts"] == []
    assert "Dry run: this was not done. It would have been: $ touch b.txt." in result["output"]
    assert not await asyncio.to_thread((tmp_path / "ledger").exists)
    workspace = recorded.workspace(record["task_id"])
    assert await asyncio.to_thread(lambda: [path.name for path in workspace.glob("*")]) == []
    opening = (await recorded.asked(record["task_id"]))[0]["body"]["messages"][0]["content"][0]["text"]
    assert "This is a dry run" in opening
