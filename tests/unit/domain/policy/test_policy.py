"""Permissions: the last matching rule decides; a subagent has what is withheld only if its own rules allow it."""

import pytest

from activities.tools.registry import TOOLS
from domain.policy.rules import DELEGATION, Action, Rule, decide, tools_of

DELEGATION_TOOLS = [name for name, tool in TOOLS.items() if tool.delegates]
ALLOW = Rule(permission=DELEGATION, action=Action.ALLOW)


def test_the_last_matching_rule_decides() -> None:
    rules = [
        Rule(permission="*", action=Action.DENY),
        Rule(permission="bash", pattern="git *", action=Action.ASK),
        Rule(permission="bash", pattern="git status*", action=Action.ALLOW),
    ]
    assert decide(rules, TOOLS["bash"], "git status -s") is Action.ALLOW
    assert decide(rules, TOOLS["bash"], "git push") is Action.ASK
    assert decide(rules, TOOLS["bash"], "rm -rf .") is Action.DENY
    assert (
        decide([], TOOLS["bash"], "ls") is Action.ALLOW and decide([], TOOLS["bash"], "ls", Action.DENY) is Action.DENY
    )


def test_brackets_in_a_pattern_are_literal() -> None:
    rules = [Rule(permission="write_file", pattern="notes[1]*", action=Action.DENY)]
    assert decide(rules, TOOLS["write_file"], "notes[1].md") is Action.DENY
    assert decide(rules, TOOLS["write_file"], "notes1.md") is Action.ALLOW


@pytest.mark.proves("S0-34")
def test_a_callers_own_session_has_what_it_declares() -> None:
    assert tools_of(TOOLS, ["bash", "update_plan"], [], delegates=False) == ["bash", "update_plan"]
    assert tools_of(TOOLS, ["bash"], [], delegates=True) == ["bash", *DELEGATION_TOOLS]
    denied = [Rule(permission="bash", action=Action.DENY)]
    assert tools_of(TOOLS, ["bash", "read_file"], denied, delegates=False) == ["read_file"]


@pytest.mark.proves("S3-04", "S3-05")
def test_subagent_has_what_is_withheld_only_by_a_rule_of_its_own() -> None:
    own = ["bash", "read_file", "update_plan", "ask_user"]
    assert tools_of(TOOLS, own, [], delegates=True, subagent=True) == ["bash", "read_file"]
    assert tools_of(TOOLS, [], [ALLOW], delegates=True, subagent=True) == DELEGATION_TOOLS
    ask = Rule(permission="ask_user", action=Action.ALLOW)
    assert tools_of(TOOLS, own, [ask], delegates=False, subagent=True) == ["bash", "read_file", "ask_user"]
    denied = Rule(permission="bash", action=Action.DENY)
    assert tools_of(TOOLS, own, [denied], delegates=False, subagent=True) == ["read_file"]
