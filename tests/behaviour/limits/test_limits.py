"""Limits of one session: tool calls are counted before they run; the agent and watchers see the remaining budget."""

import asyncio
from typing import Any

import pytest

from tests.behaviour.supervision.people import ask, waiting
from tests.support.stack import Stack, calls, eventually, of_type
from workflows.client import WorkflowClient


@pytest.mark.proves("D10")
async def test_the_limit_of_tool_calls_ends_with_a_summary(stack: Stack) -> None:
    record = await stack.run("[[script:forever tool=list_files]]", config={"max_tool_calls": 3})
    assert (record["status"], record["reason"], record["partial"]) == ("failed", "tool_limit", True)
    assert record["usage"]["tool_invocations"] == 3
    returned = [event["state"] for event in of_type(await stack.events(record["task_id"]), "tool_returned")]
    assert returned == ["ok"] * 3 + ["failed"]
    assert (await stack.result(record["task_id"]))["output"].startswith("Summary:")


async def test_no_call_beyond_the_limit_runs_and_exactly_the_limit_is_fine(stack: Stack) -> None:
    many = calls(*(("write_file", {"path": f"{n}", "content": "x"}) for n in range(5)))
    over, exact = await asyncio.gather(
        stack.run(many, config={"max_tool_calls": 2}), stack.run(many, config={"max_tool_calls": 5})
    )
    assert (over["reason"], exact["reason"]) == ("tool_limit", "goal_reached")
    for record, files in ((over, 2), (exact, 5)):
        made = await asyncio.to_thread(lambda: len(list(stack.workspace(record["task_id"]).iterdir())))  # noqa: B023
        assert made == files


@pytest.mark.proves("S1-B06")
async def test_agent_sees_its_remaining_budget_without_losing_the_prompt_cache(stack: Stack) -> None:
    record = await stack.run("[[script:count n=4]]", config={"max_steps": 9, "max_tool_calls": 7})
    asked = await stack.asked(record["task_id"])
    notes = [one["body"]["messages"][-1]["content"][-1]["text"] for one in asked]
    assert [note.split("Left to this session: ")[1].split(",")[0] for note in notes] == [
        f"{left} steps" for left in (9, 8, 7, 6, 5)
    ]
    assert all(note.startswith("<budget>") for note in notes)
    assert [note.count("7 tool calls") for note in notes] == [1, 0, 0, 0, 0]
    # the note is not in the past of the next request either
    assert "<budget>" not in str(await stack.nodes(record["task_id"]))
    assert all(str(one["body"]["messages"]).count("<budget>") == 1 for one in asked)
    usage = of_type(await stack.events(record["task_id"]), "usage_updated")
    assert all(one["call"]["cache_read_tokens"] > one["call"]["input_tokens"] for one in usage[1:])


@pytest.mark.proves("S1-B06")
async def test_low_budget_is_reported_once_for_each_limit(stack: Stack) -> None:
    record = await stack.run("[[script:forever]]", config={"max_steps": 5, "max_tool_calls": 5})
    low = of_type(await stack.events(record["task_id"]), "budget_low")
    assert sorted((one["scope"], one["budget"], one["left"]) for one in low) == [
        ("session", "steps", 1.0),
        ("session", "tool_calls", 1.0),
    ]


async def test_session_that_keeps_trying_what_is_denied_is_stopped(bounded: Stack) -> None:
    trying = '[[script:count n=30 tool=read_file input={"path": "nowhere"}]]'
    record = await bounded.run(trying, "fenced")
    assert (record["status"], record["reason"], record["partial"]) == ("failed", "policy_denied", True)
    assert record["error"]["message"].startswith("The rules of this task denied 20 calls")
    assert record["usage"]["tool_invocations"] == 20
    assert (await bounded.result(record["task_id"]))["output"].startswith("Summary:")
    last = (await bounded.asked(record["task_id"]))[-1]["body"]
    assert "its limit of calls that the rules forbid" in str(last["messages"][-1])


async def test_agent_sees_the_time_of_its_tree_as_that_of_the_tree(bounded: Stack) -> None:
    config: dict[str, object] = {"ttl": 3_000, "max_steps": 1_000, "tree": {"ttl": 3_000}}
    record = await bounded.run("[[script:forever]]", config=config)
    low = [one for one in of_type(await bounded.events(record["task_id"]), "budget_low") if one["budget"] == "ttl"]
    assert [(one["scope"], one["limit"]) for one in low] == [("session", 3_000.0)]
    record = await bounded.run("[[script:forever]]", config={"max_steps": 1_000, "tree": {"ttl": 3_000}})
    [tree] = [one for one in of_type(await bounded.events(record["task_id"]), "budget_low") if one["budget"] == "ttl"]
    assert tree["scope"] == "tree" and 2_000 < tree["limit"] <= 3_000 and tree["left"] <= 600
    budgets = (await bounded.http.get(f"/tasks/{record['task_id']}/budget")).json()["budgets"]
    assert [one["limit"] for one in budgets if one["budget"] == "ttl"] == [tree["limit"]]


@pytest.mark.proves("S1-71")
async def test_tasks_that_nobody_asks_for_expire_wherever_they_are(bounded: Stack) -> None:
    """Busy, in a model call or a tool that hangs, asking a person, waiting for its caller's tool: the only request
    is the one that submits it. Each ends, its workflow closes, and its content is removed after its retention."""
    tool = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object"}}
    config: dict[str, object] = {"ttl": 2_500, "max_steps": 1_000, "retention": 1_000}
    hangs = "[[script:say words=30]] [[fault:hang after=4 times=always]]"
    left = {
        await bounded.submit("[[script:forever]]", config=config): "ttl",
        await bounded.submit(hangs, config=config): "ttl",
        await bounded.submit(calls(("bash", {"command": "sleep 60"})), config=config): "ttl",
        await bounded.submit(calls(ask("Which?")), "curious", config=config): "input_timeout",
        await bounded.submit(calls(("look_up", {})), config={**config, "external_tools": [tool]}): "input_timeout",
    }
    found = "SELECT id, reason, ended_at - deadline AS late FROM sessions WHERE id = ANY ($1) AND ended_at IS NOT NULL"

    async def ended() -> list[Any] | None:
        rows = await bounded.pool.fetch(found, list(left))
        return rows if len(rows) == len(left) else None

    rows = await eventually(ended, what="all have expired")
    assert {row["id"]: row["reason"] for row in rows} == left
    for task_id in left:
        await bounded.session(task_id).result()

    async def removed() -> bool:
        await WorkflowClient(bounded.client, bounded.settings.task_queue).sweep()
        kept = "SELECT count(*) FROM sessions WHERE id = ANY ($1) AND content_removed_at IS NULL"
        return bool(await bounded.pool.fetchval(kept, list(left)) == 0)

    await eventually(removed, pause=0.5, what="their content is removed")


async def test_session_out_of_time_while_waiting_for_people_ends_with_input_timeout(bounded: Stack) -> None:
    task_id = await bounded.submit(calls(ask("Which?")), "curious", config={"ttl": 2_500})
    await waiting(bounded, task_id)
    record = await bounded.wait(task_id)
    assert (record["status"], record["reason"]) == ("cancelled", "input_timeout")
