"""The command `errand budget` shows the remaining budget."""

import json

import pytest

from tests.behaviour.conversations.talk import Talk, chain, say, task
from tests.behaviour.supervision.people import answer, ask, waiting
from tests.behaviour.supervision.test_command_line import cli
from tests.support.stack import Stack, calls


@pytest.mark.proves("S1-63")
async def test_the_budget_of_a_task_its_subagents_and_their_tree(bounded: Stack) -> None:
    config = {"max_tokens": 50_000, "max_tool_calls": 3, "tree": {"max_tokens": 90_000, "max_sessions": 4}}
    talk = await Talk.done(bounded, chain([task(say(), "small")]), "thrifty", config=config)
    shown = await cli(bounded, "budget", talk.id)
    assert shown.exit_code == 0, shown.output
    for text in ("thrifty", "small", "tool_calls", "together, in conversation", "sessions"):
        assert text in shown.stdout
    found = json.loads((await cli(bounded, "budget", talk.id, "--json")).stdout)
    own = {line["budget"]: (line["limit"], line["used"], line["left"]) for line in found["budgets"]}
    assert own["tool_calls"] == (3, 1, 2) and own["steps"] == (50, 2, 48)
    [child] = found["children"]
    left = {line["budget"]: line["limit"] for line in child["budgets"]}
    assert left["tokens"] < 50_000 and left["tool_calls"] == 3  # no more than the parent had left
    tree = {line["budget"]: line for line in found["tree"]["budgets"]}
    assert tree["sessions"]["used"] == 2
    spent = own["tokens"][1] + next(line["used"] for line in child["budgets"] if line["budget"] == "tokens")
    assert tree["tokens"]["used"] == spent
    assert (await cli(bounded, "budget", "nobody")).exit_code != 0


async def test_budget_command_raises_limits(bounded: Stack) -> None:
    config = {"max_steps": 1, "max_cost_usd": 0.5, "ttl": 60_000, "tree": {"max_steps": 1, "max_cost_usd": 1}}
    task_id = await bounded.submit(calls(ask("Which?")), "curious", config=config)
    [request] = await waiting(bounded, task_id)
    lower = await cli(bounded, "budget", task_id, "--max-cost", "0.1")
    assert lower.exit_code != 0 and "less than it is now" in lower.output
    more = ["--max-steps", "4", "--ttl", "2m", "--max-cost", "0.75"]
    whole = ["--tree-max-steps", "6", "--tree-max-cost", "2"]
    raised = json.loads((await cli(bounded, "budget", task_id, *more, *whole, "--json")).stdout)
    own, tree = ({line["budget"]: line["limit"] for line in of["budgets"]} for of in (raised, raised["tree"]))
    assert (own["steps"], own["ttl"], own["cost_usd"], tree["steps"], tree["cost_usd"]) == (4, 120_000, 0.75, 6, 2)
    assert (await answer(bounded, task_id, request["id"], "this one")).status_code == 202
    assert (await bounded.wait(task_id))["reason"] == "goal_reached"
    ended = await cli(bounded, "budget", task_id, "--max-steps", "9")
    assert ended.exit_code != 0 and "has ended" in ended.output
