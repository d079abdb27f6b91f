"""A rerun from one of a task's steps: what it keeps and what it can change. The original does not change."""

import json
from typing import Any

import httpx2
import pytest

from tests.support.command import cli
from tests.support.launch import TESTER
from tests.support.stack import Stack, steps

WRITES = [[("bash", {"command": f"echo {n} >> log.txt; cat log.txt"})] for n in (1, 2, 3)]


async def rerun(stack: Stack, task_id: str, **body: Any) -> httpx2.Response:
    return await stack.http.post(f"/tasks/{task_id}/rerun", json=body)


async def reran(stack: Stack, task_id: str, **body: Any) -> dict[str, Any]:
    answer = await rerun(stack, task_id, **body)
    assert answer.status_code == 202, answer.text
    return await stack.wait(answer.json()["task_id"])


async def said(stack: Stack, task_id: str) -> str:
    return str((await stack.result(task_id))["output"])


async def everything(stack: Stack, task_id: str) -> list[Any]:
    """Return all rows of the store that belong to a task."""
    rows: list[Any] = []
    for table, column in (("sessions", "id"), ("messages", "session_id"), ("events", "session_id"), ("threads", "id")):
        rows += await stack.pool.fetch(f"SELECT * FROM {table} WHERE {column} = $1 ORDER BY 1, 2, 3", task_id)
    rows += await stack.pool.fetch("SELECT * FROM tool_calls WHERE session_id = $1 ORDER BY node", task_id)
    rows += await stack.pool.fetch("SELECT * FROM workspaces WHERE id = $1", task_id)
    return rows


@pytest.fixture(scope="module")
def shared() -> dict[str, Any]:
    return {}


async def original(stack: Stack, shared: dict[str, Any]) -> str:
    """A task with three steps that each add a line to a file, and an answer; shared by the tests of this module."""
    if "id" not in shared:
        shared["id"] = (await stack.run(steps(*WRITES)))["task_id"]
        shared["rows"] = await everything(stack, shared["id"])
    task_id: str = shared["id"]
    return task_id


@pytest.mark.proves("S1-84")
async def test_rerun_starts_at_a_step_with_the_workspace_as_it_was(stack: Stack, shared: dict[str, Any]) -> None:
    task_id = await original(stack, shared)
    again = await reran(stack, task_id, from_step=3)
    assert again["status"] == "completed" and again["progress"]["step"] == 2
    repeated = await said(stack, again["task_id"])
    assert repeated.splitlines() == (await said(stack, task_id)).splitlines()  # step 3 added its line to lines 1 and 2
    assert again["rerun_of"] | {"layers": 0} == {
        "session_id": task_id,
        "from_step": 3,
        "recorded": False,
        "changed": [],
        "layers": 0,
    }
    assert again["conversation_id"] == again["task_id"] and again["parent_session_id"] == task_id
    shown = (await stack.http.get(f"/sessions/{again['task_id']}")).json()["display_messages"]
    assert shown[0]["type"] == "tool_result" and "1\n2" in shown[0]["text"]
    assert await everything(stack, task_id) == shared["rows"]


async def test_a_changed_tool_result_is_what_the_step_sees(stack: Stack, shared: dict[str, Any]) -> None:
    task_id = await original(stack, shared)
    change = [{"index": 0, "text": "the disk is full", "failed": True}]
    again = await reran(stack, task_id, from_step=2, tool_results=change)
    assert (await said(stack, again["task_id"])).startswith("bash failed: the disk is full")
    assert again["rerun_of"]["changed"] == ["tool_results"]
    assert await everything(stack, task_id) == shared["rows"]


async def test_rerun_changes_input_prompt_model_and_messages_in_between(stack: Stack, shared: dict[str, Any]) -> None:
    task_id = await original(stack, shared)
    other = await reran(stack, task_id, input="[[script:say text=Different.]]")
    assert await said(stack, other["task_id"]) == "Different."
    steered = await reran(stack, task_id, from_step=4, input="Mind the gap.")
    shown = (await stack.http.get(f"/sessions/{steered['task_id']}")).json()["display_messages"]
    assert [one["type"] for one in shown] == ["tool_result", "user", "assistant"]
    assert shown[1]["text"] == "Mind the gap."

    plain = (await stack.run("Say something"))["task_id"]
    prompted = await reran(stack, plain, prompt="[[script:say text=As-told.]]", model="claude-haiku-4-5")
    assert await said(stack, prompted["task_id"]) == "As-told." and prompted["models"] == ["claude-haiku-4-5"]
    assert prompted["agent_version"] == (await stack.record(plain))["agent_version"]
    assert (await stack.http.get("/agents/tester")).json()["prompt"] == TESTER["prompt"]
    own = (await stack.http.get(f"/tasks/{prompted['task_id']}/agent")).json()
    assert (own["prompt"], own["name"], own["shipped"]) == ("[[script:say text=As-told.]]", "tester", False)


async def test_the_step_that_failed_can_be_tried_again(stack: Stack) -> None:
    broken = await stack.run(steps(*WRITES[:2]) + " [[fault:400 at=2]]")
    assert (broken["status"], broken["progress"]["step"]) == ("failed", 2)
    again = await reran(stack, broken["task_id"], from_step=2)
    assert again["status"] == "completed" and "bash returned: 1\n2" in await said(stack, again["task_id"])
    never = await stack.run("[[script:say text=Back.]] [[fault:400]]")
    assert await said(stack, (await reran(stack, never["task_id"]))["task_id"]) == "Back."


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"from_step": 9}, 422, "/from_step"),
        ({"agent_version": 99}, 422, "/agent_version"),
        ({"agent_version": 10**15}, 422, "/agent_version"),
        ({"tool_results": [{"index": 0, "text": "x"}]}, 422, "/tool_results"),
        ({"from_step": 2, "tool_results": [{"index": 0, "text": "x"}] * 2}, 422, "/tool_results/1/index"),
        ({"recorded": True, "model": "claude-haiku-4-5"}, 422, "/model"),
        ({"config": {"max_steps": 10**9}}, 422, "/config/max_steps"),
        (
            {"recorded": True, "permissions": [{"permission": "bahs", "action": "deny"}]},
            422,
            "/permissions/0/permission",
        ),
    ],
)
async def test_refused_rerun_leaves_nothing(
    stack: Stack, shared: dict[str, Any], body: dict[str, Any], status: int, pointer: str
) -> None:
    task_id = await original(stack, shared)
    before = await _counts(stack)
    answer = await rerun(stack, task_id, **body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (status, pointer)
    assert await _counts(stack) == before


async def _counts(stack: Stack) -> list[Any]:
    tables = ("sessions", "messages", "agent_versions", "conversations", "idempotency", "inbox")
    return [await stack.pool.fetchval(f"SELECT count(*) FROM {table}") for table in tables]


@pytest.mark.exactly_once
async def test_rerun_handles_live_tasks_foreign_ids_and_repeated_requests(stack: Stack, shared: dict[str, Any]) -> None:
    live = await stack.submit("[[script:say words=30]] [[fault:hang times=always]]")
    refused = await rerun(stack, live)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:errand:problem:not-terminal")
    await stack.cancel(live)
    assert (await rerun(stack, "0" * 26)).status_code == 404
    task_id = await original(stack, shared)
    headers = {"Idempotency-Key": f"again-{task_id}"}
    two = [await stack.http.post(f"/tasks/{task_id}/rerun", json={"from_step": 4}, headers=headers) for _ in range(2)]
    assert two[0].json() == two[1].json() and two[1].headers["idempotent-replayed"] == "true"
    await stack.wait(two[0].json()["task_id"])
    # a rerun of a rerun begins where the first rerun began
    again = await reran(stack, two[0].json()["task_id"], from_step=1)
    assert await said(stack, again["task_id"]) == await said(stack, task_id)


@pytest.mark.proves("S1-84")
async def test_rerun_and_diff_from_the_command_line(stack: Stack, shared: dict[str, Any]) -> None:
    task_id = await original(stack, shared)
    begun = await cli(
        stack, "rerun", task_id, "--from-step", "3", "--tool-result", "0=nothing there", "--detach", "--json"
    )
    assert begun.exit_code == 0, begun.output
    again = json.loads(begun.stdout)["task_id"]
    await stack.wait(again)
    parted = await cli(stack, "diff", task_id, again, "--json")
    found = json.loads(parted.stdout)
    assert parted.exit_code == 1 and not found["same"]
    assert (found["parted"]["what"], found["parted"]["step_a"], found["parted"]["step_b"]) == ("text", 4, 2)
    assert found["a"]["cost_usd"] > found["b"]["cost_usd"] > 0
    shown = await cli(stack, "diff", task_id, again)
    assert "They differ at step 4 of A, 2 of B: different text" in shown.stdout
    assert f"A  {task_id}" in shown.stdout and "bash returned: nothing there" in shown.stdout
    assert "B repeats the other from step 3, changed: tool_results" in shown.stdout
    assert (await cli(stack, "diff", task_id, task_id)).exit_code == 0
    calls = await cli(stack, "rerun", task_id, "--input", "[[script:count n=1]]", "--json")
    assert calls.exit_code == 0, calls.output
    other = json.loads((await cli(stack, "diff", task_id, _last_id(calls.stdout), "--json")).stdout)
    assert other["parted"]["what"] in ("tool_call", "text") and other["parted"]["step_a"] == 1
    assert (await cli(stack, "rerun")).exit_code == 2
    assert (await cli(stack, "rerun", task_id, "--tool-result", "x")).exit_code == 2
    assert (await cli(stack, "rerun", task_id, "--from-step", "77")).exit_code == 5


def _last_id(ndjson: str) -> str:
    found: str = (
        json.loads(ndjson.splitlines()[-1]).get("session_id") or json.loads(ndjson.splitlines()[0])["session_id"]
    )
    return found
