"""Limits of one session: tool calls are counted before they run; the agent and watchers see the remaining budget."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from tests.behaviour.conversations.talk import Talk, chain, say, task
from tests.behaviour.supervision.people import answer, ask, waiting
from tests.support.command import cli
from tests.support.stack import Stack, calls, eventually, of_type

pytestmark = pytest.mark.together


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
    assert max(row["late"] for row in rows) < timedelta(seconds=2)
    for task_id in left:
        await bounded.session(task_id).result()

    async def removed() -> bool:
        await bounded.sweep()
        kept = "SELECT count(*) FROM sessions WHERE id = ANY ($1) AND content_removed_at IS NULL"
        return bool(await bounded.pool.fetchval(kept, list(left)) == 0)

    await eventually(removed, pause=0.5, what="their content is removed")


@pytest.mark.proves("S1-26")
async def test_errors_and_denials_each_raise_one_event(bounded: Stack) -> None:
    failing = '[[script:count n=11 tool=read_file input={"path": "nowhere"}]]'
    errors, denials = await asyncio.gather(bounded.run(failing), bounded.run(failing, "fenced"))
    assert errors["reason"] == denials["reason"] == "goal_reached"
    [event] = of_type(await bounded.events(errors["task_id"]), "anomaly")
    assert (event["kind"], event["value"], event["threshold"]) == ("error_rate", 1.0, 0.5)
    found = of_type(await bounded.events(denials["task_id"]), "anomaly")
    assert [(one["kind"], one["value"]) for one in found] == [("denied_calls", 5.0), ("error_rate", 1.0)]


@pytest.mark.together(False)  # its command runs in this process, whose output pytest changes between tests
@pytest.mark.proves("S1-63")
async def test_the_budget_of_a_task_its_subagents_and_their_tree(bounded: Stack) -> None:
    config = {"max_tokens": 50_000, "max_tool_calls": 3, "tree": {"max_tokens": 90_000}}
    talk = await Talk.done(bounded, chain([task(say(), "small")]), "thrifty", config=config)
    shown = await cli(bounded, "budget", talk.id)
    assert shown.exit_code == 0, shown.output
    for text in ("thrifty", "small", "tool_calls", "together, in conversation"):
        assert text in shown.stdout
    found = json.loads((await cli(bounded, "budget", talk.id, "--json")).stdout)
    own = {line["budget"]: (line["limit"], line["used"], line["left"]) for line in found["budgets"]}
    assert own["tool_calls"] == (3, 1, 2) and own["steps"] == (50, 2, 48)
    [child] = found["children"]
    left = {line["budget"]: line["limit"] for line in child["budgets"]}
    assert left["tokens"] < 50_000 and left["tool_calls"] == 3  # no more than the parent had left
    tree = {line["budget"]: line for line in found["tree"]["budgets"]}
    spent = own["tokens"][1] + next(line["used"] for line in child["budgets"] if line["budget"] == "tokens")
    assert tree["tokens"]["used"] == spent
    assert (await cli(bounded, "budget", "nobody")).exit_code != 0


@pytest.mark.together(False)
async def test_budget_command_raises_limits(bounded: Stack) -> None:
    config = {"max_steps": 1, "max_cost_usd": 0.5, "ttl": 60_000, "tree": {"max_steps": 1, "max_cost_usd": 1}}
    task_id = await bounded.submit(calls(ask("Which?")), "curious", config=config)
    [request] = await waiting(bounded, task_id)
    lower = await cli(bounded, "budget", task_id, "--max-cost", "0.1")
    assert lower.exit_code != 0 and "less than it is now" in lower.output
    more = ["--max-steps", "4", "--ttl", "2m", "--max-cost", "0.75"]
    await cli(bounded, "budget", task_id, "--tree", "--max-steps", "6", "--max-cost", "2")
    raised = json.loads((await cli(bounded, "budget", task_id, *more, "--json")).stdout)
    own, tree = ({line["budget"]: line["limit"] for line in of["budgets"]} for of in (raised, raised["tree"]))
    assert (own["steps"], own["ttl"], own["cost_usd"], tree["steps"], tree["cost_usd"]) == (4, 120_000, 0.75, 6, 2)
    assert (await answer(bounded, task_id, request["id"], "this one")).status_code == 202
    assert (await bounded.wait(task_id))["reason"] == "goal_reached"
    ended = await cli(bounded, "budget", task_id, "--max-steps", "9")
    assert ended.exit_code != 0 and "has ended" in ended.output
