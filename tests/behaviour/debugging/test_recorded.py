"""Reruns with recorded answers: no model call, no tool call, no cost; only rules and limits are applied again."""

import json
from pathlib import Path
from typing import Any

import httpx2

from tests.behaviour.conversations.talk import chain, task
from tests.behaviour.debugging.test_rerun import reran
from tests.support.command import cli
from tests.support.stack import Stack, of_type, steps

DENY_RM = [{"permission": "bash", "pattern": "rm *", "action": "deny"}]


def script(ledger: Path) -> str:
    return steps(
        [("bash", {"command": "touch kept.txt"})],
        [("bash", {"command": "rm kept.txt"}), ("ledger_once", {"path": str(ledger)})],
        [("list_files", {"path": "."})],
    )


async def requests(stack: Stack) -> int:
    async with httpx2.AsyncClient(base_url=stack.model_url, timeout=20) as http:
        return len((await http.get("/_requests", headers={"x-api-key": "k"})).json()["requests"])


async def trace(stack: Stack, task_id: str) -> dict[str, Any]:
    found: dict[str, Any] = (await stack.http.get(f"/tasks/{task_id}/trace")).json()
    return found


async def test_rule_is_applied_to_recorded_answers(stack: Stack, tmp_path: Path) -> None:
    task_id = (await stack.run(script(tmp_path / "ledger")))["task_id"]
    asked = await requests(stack)
    again = await reran(stack, task_id, recorded=True, permissions=DENY_RM)
    assert await requests(stack) == asked
    assert again["status"] == "completed" and again["usage"]["cost_usd"] == 0 and again["usage"]["llm_calls"] == 0
    before, now = await trace(stack, task_id), await trace(stack, again["task_id"])
    results = [[tool["result"] for step in run["steps"] for tool in step["tools"]] for run in (before, now)]
    refused = "The rules of this task forbid this call of bash: deny bash \"rm *\", here 'rm kept.txt'. It was not run."
    assert results[1][1] == refused
    assert [*results[0][:1], *results[0][2:]] == [*results[1][:1], *results[1][2:]]
    assert [step["models"][0]["text"] for step in before["steps"]] == [
        step["models"][0]["text"] for step in now["steps"]
    ]
    assert (tmp_path / "ledger").read_text().count("\n") == 1
    assert not stack.workspace(again["task_id"]).exists()  # nothing ran, so no workspace was made
    assert len(of_type(await stack.events(again["task_id"]), "usage_updated")) == 4


async def test_limit_is_applied_to_recorded_usage(stack: Stack, tmp_path: Path) -> None:
    record = await stack.run(script(tmp_path / "ledger"))
    spent = record["usage"]
    tokens = spent["input_tokens"] + spent["output_tokens"] + spent["cache_read_tokens"] + spent["cache_write_tokens"]
    few = await reran(stack, record["task_id"], recorded=True, config={"max_tokens": tokens // 2})
    assert (few["reason"], few["usage"]["cost_usd"]) == ("token_budget", 0)
    short = await reran(stack, record["task_id"], recorded=True, config={"max_steps": 2})
    assert short["reason"] == "step_limit"
    calls = await reran(stack, record["task_id"], recorded=True, config={"max_tool_calls": 2})
    assert calls["reason"] == "tool_limit"
    same = await reran(stack, record["task_id"], recorded=True, from_step=2)
    assert same["reason"] == "goal_reached"


async def test_rule_and_limit_are_applied_inside_inline_subagents(team: Stack, tmp_path: Path) -> None:
    """An inline subagent repeats its recorded steps, so rules apply to its calls and limits count them."""
    ledger = tmp_path / "ledger"
    effects = chain([("bash", {"command": "rm kept.txt"})], [("ledger_once", {"path": str(ledger)})], last="Inside.")
    below = chain([("bash", {"command": "rm -f below.txt"})], last="Below.")
    calls = [("delegate", {"agent": "helper", "prompt": effects}) for _ in range(2)]
    record = await team.run(chain([*calls, task(below)], [("list_files", {"path": "."})], last="All told."), "lead")
    assert record["status"] == "completed" and len(ledger.read_text().splitlines()) == 2
    asked = await requests(team)
    again = await reran(team, record["task_id"], recorded=True, permissions=DENY_RM)
    assert (again["status"], again["usage"]["llm_calls"], await requests(team)) == ("completed", 0, asked)
    before, now = await trace(team, record["task_id"]), await trace(team, again["task_id"])
    for index in (0, 1):
        lines = [run["steps"][0]["tools"][index] for run in (before, now)]
        texts = [[step["models"][0]["text"] for step in line["steps"]] for line in lines]
        assert texts[0] == texts[1] and lines[0]["result"] == lines[1]["result"]
        assert "forbid" in lines[1]["steps"][0]["tools"][0]["result"]
        assert lines[0]["steps"][1]["tools"][0]["result"] == lines[1]["steps"][1]["tools"][0]["result"]
    assert len(ledger.read_text().splitlines()) == 2
    steps_taken = 3 + 2 * 3  # three steps of the session itself, and three inside each of the two calls
    enough = await reran(team, record["task_id"], recorded=True, config={"max_steps": steps_taken})
    few = await reran(team, record["task_id"], recorded=True, config={"max_steps": steps_taken - 1})
    assert (enough["reason"], few["reason"]) == ("goal_reached", "step_limit")

    reported = await cli(team, "rerun", record["task_id"], "--recorded", "--permission", "bash:rm *=deny", "--json")
    assert reported.exit_code == 0, reported.output
    report = json.loads(reported.stdout)
    stops = [(stop["tool"], json.loads(stop["arguments"])) for one in report["tasks"] for stop in one["stopped"]]
    assert stops == [("bash", {"command": "rm kept.txt"})] * 2 + [("bash", {"command": "rm -f below.txt"})]
    assert (report["tried"], report["affected"]) == (2, 2)  # the task, and the subagent that has a separate session


async def test_recording_of_an_interrupted_task_ends_where_the_task_ended(stack: Stack) -> None:
    cut = await stack.run("[[script:forever]]", config={"max_steps": 2})
    assert cut["reason"] == "step_limit"
    again = await reran(stack, cut["task_id"], recorded=True, config={"max_steps": 9})
    assert (again["status"], again["error"]["type"]) == ("failed", "RecordingEnded")
