"""The API's request to a worker before an agent's version is made: read the tool lists of its MCP servers."""

from pydantic import BaseModel, Field

from domain.agents.definition import AgentDefinition
from domain.agents.mcp_server import McpServer, McpTool


class DiscoverTools(BaseModel):
    tenant: str  # its variables fill the headers
    agent: AgentDefinition
    servers: list[str]
    variables: dict[str, str] = Field(default_factory=dict)  # variables that a task brings, as they are stored


class DiscoveredTools(BaseModel):
    tools: dict[str, list[McpTool]] = Field(default_factory=dict)  # by server
    problems: dict[str, str] = Field(default_factory=dict)  # by server: why its list cannot be used


def with_known_lists(agent: AgentDefinition, before: AgentDefinition | None) -> AgentDefinition:
    """The agent with the tool lists of its previous version for servers that did not change; only a refresh renews
    those. A list in the definition itself is ignored: a worker reads it from the server."""
    known = before.mcp_servers if before is not None else {}

    def pinned(name: str, server: McpServer) -> McpServer:
        same = name in known and known[name].unpinned == server.unpinned
        return server.model_copy(update={"tools": known[name].tools if same else None})

    return _with_servers(agent, {name: pinned(name, server) for name, server in agent.mcp_servers.items()})


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


def _with_servers(agent: AgentDefinition, servers: dict[str, McpServer]) -> AgentDefinition:
    return agent.model_copy(update={"mcp_servers": servers}) if servers else agent
