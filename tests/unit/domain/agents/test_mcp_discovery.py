"""Requests for tool lists contain only what the worker needs. All lists together have a size limit."""

from typing import Any

import pytest

from agents.problems import mcp_problems
from domain.agents.definition import AgentDefinition, ExternalTool, McpTool, tool_problems
from domain.agents.mcp_discovery import DiscoveredTools, DiscoverTools, lists_problem, with_lists
from domain.agents.variables import open_secrets, seal_all
from domain.sealing import KeyRing


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


def test_names_of_tools_of_servers_are_reserved() -> None:
    tools = [ExternalTool(name=name, description="x", input_schema={"type": "object"}) for name in ("mcp__a__b", "c")]
    [problem] = tool_problems("external_tools", tools, ())
    assert problem.field == "external_tools.0.name" and "mcp__" in problem.message
