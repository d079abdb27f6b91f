"""The names that a caller's tools cannot have, against what the tools themselves declare."""

import pytest

from activities.requests.external_tools import callers_tool
from activities.tools import rules
from activities.tools.registry import TOOLS
from activities.tools.rules import without_standing
from activities.tools.tool import Tool
from domain.agents.definition import AgentDefinition
from domain.agents.own_tools import ADDRESSING, ASKING, DELEGATING, HAVE_OWN_EVENT, PLANNING, own_tools
from domain.agents.prompt import SubagentRef
from domain.content import ToolCallBlock
from domain.external_tool import ExternalTool, tool_problems
from domain.policy.rules import Action, Rule, StandingRule


def test_names_are_those_of_the_tools_with_these_traits() -> None:
    assert {name for name, tool in TOOLS.items() if tool.asks} == ASKING
    assert {name for name, tool in TOOLS.items() if tool.plans} == PLANNING
    assert {name for name, tool in TOOLS.items() if tool.delegates} == DELEGATING
    assert {name for name, tool in TOOLS.items() if tool.has_own_event} == HAVE_OWN_EVENT
    assert {*TOOLS} >= ADDRESSING


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
    """An approval for a caller's tool does not cover the built-in tool of the same name, nor the other way round."""
    own, brought = (
        TOOLS["write_file"],
        callers_tool(ExternalTool(name="write_file", description="D.", input_schema={"type": "object"})),
    )
    layers = [[Rule(permission="write_file", action=Action.ASK)]]
    standing = [StandingRule(permission="write_file", action=Action.ALLOW, external=external)]
    block = ToolCallBlock(id="1", name="write_file", arguments={"path": "a", "content": "b"})

    def asks(tool: Tool) -> bool:
        offered = {tool.name: (tool, tool.definition)}
        made = rules.tool_calls({}, offered, [block], layers, True)
        [call] = without_standing(made, offered, [block], layers, standing)
        assert call.external is tool.external
        return call.ask

    assert (asks(brought), asks(own)) == (not external, external)
