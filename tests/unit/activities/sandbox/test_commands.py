"""Which commands have network access, for every combination of settings."""

import pytest

from activities.egress import Guard
from activities.environments import open_network
from activities.sandbox import Commands, Refusing
from domain.agents.definition import AgentDefinition
from domain.sessions.session import SandboxMode

SANDBOX = Refusing("none", "none")


@pytest.mark.parametrize("operator", [False, True])
@pytest.mark.parametrize("definition", [False, True])
@pytest.mark.parametrize("mode", [None, *SandboxMode])
def test_operator_and_definition_enable_a_network_and_a_task_can_only_disable_it(
    operator: bool, definition: bool, mode: SandboxMode | None
) -> None:
    commands = Commands(SANDBOX, guard=Guard() if operator else None)
    expected = operator and definition and mode is not SandboxMode.ISOLATED
    agent = AgentDefinition(name="a", description="a", prompt="a", network=definition)
    assert (open_network(commands, agent, mode, []) is not None) is expected
