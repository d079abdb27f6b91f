"""discover_tools: reads the tool lists of an agent's MCP servers before a version of the agent is made."""

import asyncio
import time
from collections.abc import Mapping
from types import MappingProxyType

from temporalio import activity

from activities.attempt import beating
from activities.egress import Fetcher
from activities.mcp.connection import McpFailure
from activities.mcp.tool_list import read_list
from activities.sandbox import Commands
from domain.agents.definition import AgentDefinition
from domain.agents.mcp_discovery import (
    DiscoveredTools,
    DiscoverTools,
    lists_problem,
    unread,
    with_known_lists,
    with_lists,
)
from domain.agents.mcp_server import LONGEST_DESCRIPTION, McpTool
from domain.agents.prompt import VariableKind
from domain.agents.secret_variables import open_secrets
from domain.agents.variable_scope import Values, resolved, shared
from domain.redaction import Redactor, is_sealed
from domain.sealing import KeyRing, SealingError
from store import agents, tenant_variables
from store.agents import SHIPPED
from store.database import Pool

RETRY_SECONDS = 30.0


class ToolLists:
    """`deployments`: the variables that the deployment sets for all threads."""

    def __init__(
        self, pool: Pool, fetcher: Fetcher, commands: Commands, keys: KeyRing, deployments: Mapping[str, str]
    ) -> None:
        self._pool = pool
        self._fetcher = fetcher
        self._commands = commands
        self._keys = keys
        self._deployments = deployments

    @activity.defn(name="discover_tools")
    @beating
    async def discover_tools(self, wanted: DiscoverTools) -> DiscoveredTools:
        return await self.discover(wanted.tenant, wanted.agent, wanted.servers, wanted.variables)

    def can_fill(self, agent: AgentDefinition, server: str) -> bool:
        """Whether the headers of a server need no tenant's value."""
        return agent.mcp_servers[server].variables() <= resolved(agent, shared({}, self._deployments)).keys()

    async def discover(
        self, tenant: str, agent: AgentDefinition, servers: list[str], given: Mapping[str, str] = MappingProxyType({})
    ) -> DiscoveredTools:
        """`given`: variables that a task brings, as they are stored."""
        stored = {} if tenant == SHIPPED else await tenant_variables.values(self._pool, tenant)
        try:
            tenants = {**stored, **open_secrets(self._keys, tenant, stored)}
            own = {**given, **open_secrets(self._keys, tenant, given)}
        except SealingError as error:
            return DiscoveredTools(problems=dict.fromkeys(servers, f"The tenant's secrets cannot be read: {error}."))
        values = {**shared(tenants, self._deployments), **own}

        known = resolved(agent, values)
        kinds = {**agent.all_variables, **agent.variables}
        secret = {name for name, value in stored.items() if is_sealed(value)}
        secret |= {name for name, one in kinds.items() if one.kind is VariableKind.SECRET}

        async def read(name: str) -> list[McpTool] | McpFailure:
            hide = Redactor(known[one] for one in secret & known.keys() & agent.mcp_servers[name].variables())
            try:
                return [_redacted(one, hide) for one in await self._listed(agent, name, values)]
            except McpFailure as error:
                return McpFailure(hide.text(str(error)))

        found = dict(zip(servers, await asyncio.gather(*map(read, servers)), strict=True))
        return DiscoveredTools(
            tools={name: one for name, one in found.items() if isinstance(one, list)},
            problems={name: str(one) for name, one in found.items() if isinstance(one, McpFailure)},
        )

    async def _listed(self, agent: AgentDefinition, name: str, values: Values) -> list[McpTool]:
        return await read_list(self._fetcher, self._commands, agent, name, values)


def _redacted(tool: McpTool, hide: Redactor) -> McpTool:
    """The tool without the secrets that its server was sent, which it may repeat."""
    if hide.text(tool.name) != tool.name:
        raise McpFailure("It lists a tool with a secret in its name.")
    description = hide.text(tool.description)[:LONGEST_DESCRIPTION]
    return tool.model_copy(update={"description": description, "input_schema": hide.json(tool.input_schema)})


class ShippedLists:
    """Reads the tool lists of shipped agents. Lists that need a tenant's variable stay unread: the tenant's own version
    has them. Lists that cannot be read are tried again."""

    def __init__(self, pool: Pool, lists: ToolLists) -> None:
        self._pool = pool
        self._lists = lists
        self._tried = 0.0
        self.problems: dict[str, list[str]] = {}  # by agent

    @property
    def all_problems(self) -> list[str]:
        return [problem for found in self.problems.values() for problem in found]

    def due(self) -> bool:
        return bool(self.all_problems) and time.monotonic() - self._tried > RETRY_SECONDS

    async def pinned(self, agent: AgentDefinition) -> AgentDefinition:
        if not agent.mcp_servers:
            self.problems.pop(agent.name, None)
            return agent
        before = await agents.current(self._pool, SHIPPED, agent.name)
        agent = with_known_lists(agent, before[1] if before else None)
        wanted = [name for name in unread(agent) if self._lists.can_fill(agent, name)]
        self._tried = time.monotonic()
        found = await self._lists.discover(SHIPPED, agent, wanted)
        self.problems[agent.name] = [
            f"agent file {agent.name}.md: mcp_servers.{name}: {reason}" for name, reason in found.problems.items()
        ]
        pinned = with_lists(agent, found)
        if problem := lists_problem(pinned):
            self.problems[agent.name].append(f"agent file {agent.name}.md: mcp_servers: {problem}")
            return agent
        return pinned
