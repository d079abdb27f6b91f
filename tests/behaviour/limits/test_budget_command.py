"""What is left, on the command line."""

import json

import pytest

from tests.behaviour.conversations.talk import Talk, chain, say, task
from tests.behaviour.supervision.test_command_line import cli
from tests.support.stack import Stack


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
    assert left["tokens"] < 50_000 and left["tool_calls"] == 3  # no more than its parent had
    tree = {line["budget"]: line for line in found["tree"]["budgets"]}
    assert tree["sessions"]["used"] == 2
    spent = own["tokens"][1] + next(line["used"] for line in child["budgets"] if line["budget"] == "tokens")
    assert tree["tokens"]["used"] == spent
    assert (await cli(bounded, "budget", "nobody")).exit_code != 0
