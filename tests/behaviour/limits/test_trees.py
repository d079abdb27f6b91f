"""Budgets of a whole tree: concurrent subagents share them, and none can use what another has reserved."""

from typing import Any

import pytest

from store import budgets
from tests.behaviour.conversations.talk import Gate, Talk, async_task, chain, say, slow, task
from tests.support.stack import Stack, calls, of_type

pytestmark = pytest.mark.together

WRITES = calls(*(("write_file", {"path": f"{number}", "content": "x"}) for number in range(3)))


async def tree(stack: Stack, task_id: str) -> dict[str, Any]:
    shown = (await stack.http.get(f"/tasks/{task_id}/budget")).json()["tree"]
    assert (await budgets.sum_reserved(stack.pool, "default", task_id)).calls == shown["reserved"]["calls"]
    return {line["budget"]: line for line in shown["budgets"]} | {"reserved": shown["reserved"]}


@pytest.mark.proves("S1-63", "S1-B06")
async def test_concurrent_subagents_never_spend_more_than_the_tree_has(bounded: Stack) -> None:
    most = 25_000
    four = [async_task("[[script:count n=20]]", "small")] * 4
    talk = await Talk.done(bounded, chain(four), "thrifty", config={"tree": {"max_tokens": most}})
    await talk.rest()
    children = await talk.children()
    assert len(children) == 4
    assert {child.reason for child in children} == {"tree_budget"}
    assert all(child.partial and "tokens" in (child.error or "") for child in children)
    used = await tree(bounded, talk.id)
    sessions = [await talk.session(talk.id), *children]
    assert used["tokens"]["used"] == sum(one.usage.tokens for one in sessions)
    final_calls = [of_type(await bounded.events(one.id), "usage_updated")[-1]["call"] for one in children]
    farewells = sum(sum(call[name] for name in call if name.endswith("_tokens")) for call in final_calls)
    assert used["tokens"]["used"] - farewells <= most  # only the summaries may exceed the budget
    assert used["reserved"] == {"calls": 0, "tokens": 0, "cost_usd": 0}
    low = [one for row in sessions for one in of_type(await bounded.events(row.id), "budget_low")]
    assert [(one["budget"], one["limit"]) for one in low if one["scope"] == "tree"] == [("tokens", most)]


async def test_running_calls_keep_their_reservation(bounded: Stack) -> None:
    four = [async_task(slow(1.0), "small")] * 4  # all of them reserve steps before any is counted
    talk = await Talk.done(bounded, chain(four), "thrifty", config={"tree": {"max_steps": 4}})
    await talk.rest()
    assert (await tree(bounded, talk.id))["steps"]["used"] == 4
    ends = [str(row.reason) for row in await talk.sessions()]
    assert sorted(ends) == ["goal_reached"] * 3 + ["tree_budget"] * 2


@pytest.mark.proves("S1-B07")
async def test_parent_learns_that_a_budget_ended_its_subagent(bounded: Stack) -> None:
    spec = {"tree": {"max_steps": 4}}
    record = await bounded.run(chain([task("[[script:forever]]", "small")]), "thrifty", config=spec)
    assert record["reason"] == "tree_budget"  # the parent's next step would be the fifth
    events = await bounded.events(record["task_id"])
    [reported] = of_type(events, "subagent_budget_exceeded")
    assert reported["reason"] == "tree_budget" and "steps" in reported["error"]
    [returned] = of_type(events, "tool_returned")
    assert "budget of steps" in returned["preview"]


async def test_tool_calls_of_the_tree_are_counted_before_they_run(bounded: Stack) -> None:
    spec = {"tree": {"max_tool_calls": 6}}  # three calls to start the subagents, three calls of the subagents
    talk = await Talk.done(bounded, chain([async_task(WRITES, "small")] * 3), "thrifty", config=spec)
    await talk.rest()
    states = [
        event["state"]
        for child in await talk.children()
        for event in of_type(await bounded.events(child.id), "tool_returned")
    ]
    assert (states.count("ok"), states.count("failed")) == (3, 6)
    assert {child.reason for child in await talk.children()} <= {"tree_budget", "goal_reached"}
    assert (await tree(bounded, talk.id))["tool_calls"]["used"] == 6


async def test_failed_call_releases_its_reservation(bounded: Stack) -> None:
    talk = await Talk.done(bounded, "[[fault:400 times=always]]", "thrifty", config={"tree": {"max_tokens": 9_000}})
    assert (await talk.session(talk.id)).reason == "error"
    used = await tree(bounded, talk.id)
    assert (used["tokens"]["used"], used["reserved"]["calls"]) == (0, 0)
    gate = Gate()  # an inline subagent that fails releases its reservation while its session continues
    inline = ("delegate", {"agent": "small", "prompt": "[[fault:400 times=always]]"})
    talk = await Talk.begin(bounded, chain([inline], [gate.call]), "thrifty", config={"tree": {"max_tokens": 90_000}})
    await bounded.seen(talk.id, "tool_called", tool="wait_for")
    assert (await tree(bounded, talk.id))["reserved"]["calls"] == 0
    gate.open()
    assert (await talk.ended(talk.id)).reason == "goal_reached"


async def test_conversation_with_a_spent_budget_refuses_turns_until_it_is_raised(bounded: Stack) -> None:
    talk = await Talk.done(bounded, say("One."), "thrifty", config={"tree": {"max_steps": 1}})
    body = {"input": say("Two."), "if_busy": "reject"}
    path = f"/conversations/{talk.id}/messages"
    refused = await bounded.http.post(path, json=body)
    assert refused.status_code == 409 and refused.json()["type"].endswith("budget-spent")
    assert len(await talk.sessions()) == 1
    more = await bounded.http.post(path, json={**body, "config": {"tree": {"max_steps": 5}}})
    assert more.status_code == 202, more.text
    assert (await talk.ended(more.json()["session_id"])).reason == "goal_reached"
    assert (await tree(bounded, talk.id))["steps"]["used"] == 2


@pytest.mark.parametrize(
    ("config", "pointer"),
    [
        ({"max_steps": 11, "tree": {"max_steps": 10}}, "/config/max_steps"),
        ({"ttl": 5_000, "input_timeout": 6_000}, "/config/input_timeout"),
        ({"max_tool_calls": 0}, "/config/max_tool_calls"),
        ({"model": "unheard-of", "tree": {"max_cost_usd": 1}}, "/config/tree/max_cost_usd"),
    ],
    ids=str,
)
async def test_contradictory_limits_are_refused(stack: Stack, config: dict[str, Any], pointer: str) -> None:
    answer = await stack.http.post("/tasks", json={"agent": "tester", "input": "x", "config": config})
    assert answer.status_code == 422
    assert [one["pointer"] for one in answer.json()["errors"]] == [pointer]
