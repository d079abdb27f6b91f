"""How this worker runs commands: the sandbox, its limits, and which sessions have a network."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from activities.egress import Guard
from activities.sandbox.network import NetworkPolicy
from activities.sandbox.sandbox import Sandbox, SandboxLimits
from domain.agents.definition import AgentDefinition
from domain.policy.rules import Rule, host_permitted
from domain.policy.traits import ToolTraits
from domain.sessions.session import SandboxMode

log = logging.getLogger(__name__)


def existing(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folders that commands may read, without those that do not exist: a sandbox could not start with them."""
    missing = [folder for folder in folders if not (Path(folder).is_absolute() and Path(folder).is_dir())]
    if missing:
        log.error("ERRAND_SANDBOX_FOLDERS: left out, because they are no folders with an absolute path: %s", missing)
    return tuple(folder for folder in folders if folder not in missing)


@dataclass(frozen=True)
class Commands:
    """`guard` is None if the operator gives no command a network, whatever agents and tasks say."""

    sandbox: Sandbox
    limits: SandboxLimits = SandboxLimits()
    guard: Guard | None = None
    # rules about tools that reach hosts bind commands too
    tools: Mapping[str, ToolTraits] = field(default_factory=dict)

    def networked(self, agent: AgentDefinition, mode: SandboxMode | None) -> bool:
        """Whether a session has a network: its agent's definition and the operator must both allow it; a task can only
        deny."""
        return self.guard is not None and agent.network and mode is not SandboxMode.ISOLATED

    def network(
        self, agent: AgentDefinition, mode: SandboxMode | None, layers: list[list[Rule]]
    ) -> NetworkPolicy | None:
        """The hosts that a networked command may reach: those that its agent names and the rules allow."""
        if self.guard is None or not self.networked(agent, mode):
            return None
        tools = self.tools.values()
        return NetworkPolicy(self.guard, lambda host: agent.may_reach(host) and host_permitted(layers, host, tools))
