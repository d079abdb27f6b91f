"""The arguments of an agent's tool."""

from typing import Any

import pytest

from api.faces.mcp.tools import task_of
from domain.agents.definition import AgentDefinition


def agent(**more: Any) -> AgentDefinition:
    return AgentDefinition.model_validate({"name": "helper", "description": "Helps.", "prompt": "x", **more})


OWN = {"type": "object", "properties": {"max_cost_usd": {"type": "string"}, "path": {}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("definition", "arguments", "body"),
    [
        (agent(), {"input": "x"}, {"input": "x"}),
        (agent(), {"input": "x", "max_cost_usd": 1}, {"input": "x", "config": {"max_cost_usd": 1}}),
        (agent(), {"input": "x", "files": ["f"]}, {"input": "x", "context": {"files": ["f"]}}),
        (agent(input_schema=OWN), {"path": "p", "files": []}, {"input": {"path": "p"}, "context": {"files": []}}),
        (agent(input_schema=OWN), {"max_cost_usd": "mine"}, {"input": {"max_cost_usd": "mine"}}),
    ],
)
def test_arguments_become_the_body_of_a_task(
    definition: AgentDefinition, arguments: dict[str, Any], body: dict[str, Any]
) -> None:
    assert task_of(definition, arguments) == {"agent": "helper", **body}
