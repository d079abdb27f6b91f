"""The API's request to a worker before an agent's version is made: read the tool lists of its MCP servers."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pydantic import BaseModel, Field

from domain.agents.definition import AgentDefinition, McpServer, McpTool

MOST_TOOLS = 256  # of all servers of an agent
LARGEST_LISTS = 400_000  # characters of JSON, of all tools of an agent together


class DiscoverTools(BaseModel):
    tenant: str  # its variables fill the headers
    agent: AgentDefinition
    servers: list[str]
    variables: dict[str, str] = Field(default_factory=dict)  # variables that a task brings, sealed

    @classmethod
    def of(
        cls,
        tenant: str,
        agent: AgentDefinition,
        servers: Sequence[str],
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> "DiscoverTools":
        """The request with these servers and the variables that their headers name. A workflow's history keeps it, so
        it has nothing else of the definition or of the task."""
        chosen = {name: agent.mcp_servers[name].unpinned for name in servers}
        named = {variable for server in chosen.values() for variable in server.variables()}
        known = {**agent.all_variables, **agent.variables}
        part = AgentDefinition(
            name=agent.name,
            mcp_servers=chosen,
            variables={name: one for name, one in known.items() if name in named},
            env={name: value for name, value in agent.env.items() if name in named},
        )
        given = {name: value for name, value in variables.items() if name in named}
        return cls(tenant=tenant, agent=part, servers=list(servers), variables=given)


class DiscoveredTools(BaseModel):
    tools: dict[str, list[McpTool]] = Field(default_factory=dict)  # by server
    problems: dict[str, str] = Field(default_factory=dict)  # by server: why its list cannot be used


def with_known_lists(agent: AgentDefinition, before: AgentDefinition | None) -> AgentDefinition:
    """The agent with the tool lists of its previous version for servers that did not change; only a refresh renews
    those. A list in the definition itself is ignored: a worker reads it from the server."""
    known = before.mcp_servers if before is not None else {}

    def keep_list(name: str, server: McpServer) -> McpServer:
        same = name in known and known[name].unpinned == server.unpinned
        return server.model_copy(update={"tools": known[name].tools if same else None})

    return _with_servers(agent, {name: keep_list(name, server) for name, server in agent.mcp_servers.items()})


def without_lists(agent: AgentDefinition) -> AgentDefinition:
    return _with_servers(agent, {name: server.unpinned for name, server in agent.mcp_servers.items()})


def unread(agent: AgentDefinition) -> list[str]:
    """The servers whose list was not read yet."""
    return [name for name, server in agent.mcp_servers.items() if server.tools is None]


def with_lists(agent: AgentDefinition, found: DiscoveredTools) -> AgentDefinition:
    servers = {
        name: server.model_copy(update={"tools": found.tools[name]}) if name in found.tools else server
        for name, server in agent.mcp_servers.items()
    }
    return _with_servers(agent, servers)


def lists_problem(agent: AgentDefinition) -> str | None:
    """Why the lists of all servers together cannot be used: each request to a model has all of them."""
    tools = [tool for server in agent.mcp_servers.values() for tool in server.tools or ()]
    if len(tools) > MOST_TOOLS:
        return f"its servers have {len(tools)} tools, and an agent may have {MOST_TOOLS}: choose with `only`"
    if sum(len(tool.model_dump_json()) for tool in tools) > LARGEST_LISTS:
        return f"its servers describe their tools in more than {LARGEST_LISTS:,} characters: choose with `only`"
    return None


def _with_servers(agent: AgentDefinition, servers: dict[str, McpServer]) -> AgentDefinition:
    return agent.model_copy(update={"mcp_servers": servers}) if servers else agent
