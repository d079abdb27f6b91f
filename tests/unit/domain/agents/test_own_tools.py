"""What an agent brings: names of a caller's tools, lists of MCP servers, turns of handlers, typed output."""

from typing import Any

import pytest

from activities.requests.external_tools import make_callers_tool
from activities.tools import rules
from activities.tools.registry import TOOLS
from activities.tools.rules import drop_approved_asks
from activities.tools.tool import Tool
from agents.problems import mcp_problems
from domain.agents import definition as own_tools_module
from domain.agents.definition import (
    AgentDefinition,
    ExternalTool,
    McpTool,
)
from domain.agents.mcp_discovery import DiscoveredTools, DiscoverTools, lists_problem, with_lists
from domain.agents.typed_output import parse_typed
from domain.agents.variables import open_secrets, seal_all
from domain.messages import (
    ToolCallBlock,
)
from domain.policy.rules import Action, Rule, StandingRule
from domain.sealing import KeyRing

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


def agent(**servers: Any) -> AgentDefinition:
    variables = {name: {"description": name, "default": f"default-{name}"} for name in ("KEY", "OTHER")}
    given = {"name": "x", "prompt": "Confidential.", "variables": variables, "env": {"KEY": "env-key", "OTHER": "env"}}
    return AgentDefinition.model_validate({**given, "mcp_servers": servers})


def test_request_has_only_its_servers_and_the_variables_of_their_headers_sealed() -> None:
    wanted = {"url": "https://a.example", "headers": {"X-Key": "${KEY}"}}
    definition = agent(a=wanted, b={"url": "https://b.example", "headers": {"X-Other": "${OTHER}"}})
    keys = KeyRing({"k1": bytes(32)})
    values = seal_all(keys, "t", {"KEY": "plain-key", "OTHER": "plain-other"})
    request = DiscoverTools.of("t", definition, ["a"], values)
    sent = request.model_dump_json()
    assert not any(text in sent for text in ("Confidential", "b.example", "OTHER", "plain-"))
    assert request.agent.env == {"KEY": "env-key"} and request.agent.variables.keys() == {"KEY"}
    assert open_secrets(keys, "t", request.variables) == {"KEY": "plain-key"}
    assert seal_all(keys, "t", values) == values


@pytest.mark.parametrize(("count", "size"), [(100, 10), (60, 3_500)])
def test_lists_of_all_servers_together_are_bounded(count: int, size: int) -> None:
    tools = [
        McpTool(name=f"t{number}", description="x" * size, input_schema={"type": "object"}) for number in range(count)
    ]
    definition = agent(**{name: {"url": f"https://{name}.example"} for name in "abc"})
    one = with_lists(definition, DiscoveredTools(tools={"a": tools}))
    every = with_lists(definition, DiscoveredTools(tools=dict.fromkeys("abc", tools)))
    assert lists_problem(one) is None and "choose with `only`" in (lists_problem(every) or "")


def test_header_that_looks_like_a_secret_needs_a_real_variable() -> None:
    def problems(value: str) -> list[str]:
        server = {"url": "https://a.example", "headers": {"Authorization": value}}
        return [one.message for one in mcp_problems(agent(a=server))]

    assert not problems("Bearer ${KEY}")
    assert all("looks like a secret" in problems(value)[0] for value in ("plain", "pa${ss", "pa${}ss", "${not a name}"))


SCHEMA = {
    "type": "object",
    "properties": {"port": {"type": "integer"}, "names": {"type": "array", "items": {"type": "string"}}},
    "required": ["port"],
}


@pytest.mark.parametrize(
    "text",
    [
        '{"port": 1}',
        'Here it is:\n```\n{"port": 2}\n```\nor rather\n```json\n{"port": 1}\n```\nDone.',
    ],
)
def test_a_value_is_found(text: str) -> None:
    assert parse_typed(SCHEMA, text) == {"port": 1}
