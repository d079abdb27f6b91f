"""The lists of names that a caller's tools cannot have agree with what the built-in tools declare."""

import pytest

from activities.requests.external_tools import make_callers_tool
from activities.tools import rules
from activities.tools.registry import TOOLS
from activities.tools.rules import drop_approved_asks
from activities.tools.tool import BEGIN_DELEGATIONS, Tool
from domain.agents import definition as own_tools_module
from domain.agents.definition import DELEGATING, AgentDefinition, ExternalTool, SubagentRef, own_tools, tool_problems
from domain.conversations.subagents import DelegationTool
from domain.messages import ToolCallBlock
from domain.policy.rules import Action, Rule, StandingRule

TRAITS = {
    "ASKING": "asks",
    "PLANNING": "plans",
    "DELEGATING": "delegates",
    "ADDRESSING": "addresses",
    "HAVE_OWN_EVENT": "has_own_event",
}


def test_every_list_has_the_names_of_the_tools_with_its_trait() -> None:
    lists = {name: value for name, value in vars(own_tools_module).items() if isinstance(value, frozenset)}
    named = {
        name: frozenset(tool.name for tool in TOOLS.values() if getattr(tool, trait)) for name, trait in TRAITS.items()
    }
    assert lists == named


def test_tools_that_begin_with_a_delegation_are_those_that_a_session_knows() -> None:
    begun = {name for name, tool in TOOLS.items() if tool.activity == BEGIN_DELEGATIONS}
    assert begun | {DelegationTool.SUBAGENT} == set(DelegationTool)  # such a tool has the name of its agent


def test_an_agent_has_the_names_of_its_tools_and_leaves_the_others_free() -> None:
    agent = AgentDefinition(name="a", description="A.", prompt="Do.", tools=["bash"])
    assert own_tools(agent, may_ask=False, plans=False) == {"bash"}
    assert own_tools(agent, may_ask=True, plans=True) == {"bash", "ask_user", "update_plan"}
    lead = AgentDefinition(name="a", description="A.", prompt="Do.", subagents=[SubagentRef(agent="b")], handoffs=["c"])
    assert own_tools(lead, may_ask=False, plans=False) == {"c", *DELEGATING}


@pytest.mark.parametrize("name", ["write_file", "Send-Mail", "wait_for_event", "9", "x" * 64])
def test_any_free_name_is_a_name(name: str) -> None:
    tool = ExternalTool(name=name, description="D.", input_schema={"type": "object"})
    assert tool_problems("x", [tool], {"bash"}) == []
    assert tool_problems("x", [tool], {name})


@pytest.mark.parametrize("external", [True, False])
def test_an_approval_for_a_whole_conversation_holds_for_one_kind_of_tool(external: bool) -> None:
    """An approval for a caller's tool does not cover the built-in tool of the same name, or vice versa."""
    own, brought = (
        TOOLS["write_file"],
        make_callers_tool(ExternalTool(name="write_file", description="D.", input_schema={"type": "object"})),
    )
    layers = [[Rule(permission="write_file", action=Action.ASK)]]
    standing = [StandingRule(permission="write_file", action=Action.ALLOW, external=external)]
    block = ToolCallBlock(id="1", name="write_file", arguments={"path": "a", "content": "b"})

    def asks(tool: Tool) -> bool:
        offered = {tool.name: (tool, tool.definition)}
        made = rules.judge_calls({}, offered, [block], layers, True)
        [call] = drop_approved_asks(made, offered, [block], layers, standing)
        assert call.external is tool.external
        return call.ask

    assert (asks(brought), asks(own)) == (not external, external)
