"""MCP servers that a task brings for itself: over HTTP, at hosts that the definition of its agent permits."""

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from agents.mcp_problems import mcp_problems
from api.auth import Call
from api.http.problems import finding
from api.schemas.problems import Finding
from domain.agents.definition import AgentDefinition
from domain.agents.mcp_discovery import DiscoverTools, unread, with_lists
from domain.agents.mcp_server import MOST_SERVERS, McpServer
from domain.errors import Invalid
from domain.task import TaskSpec
from store.agents import TaskAgent

WHERE = "/config/mcp_servers"


def refuse(spec: TaskSpec) -> None:
    """Refuse servers in a request that is not a task of its own, because its next turn would not have them."""
    if spec.config.mcp_servers:
        problem = finding(WHERE, "unavailable", "only a task that is submitted on its own can bring MCP servers")
        raise Invalid("This request cannot bring MCP servers.", errors=[problem])


async def added(call: Call, spec: TaskSpec, agent: TaskAgent) -> TaskAgent:
    """The agent with the servers of the task, whose tool lists are read now."""
    if not spec.config.mcp_servers:
        return agent
    own = agent.definition.mcp_servers
    given = {name: server.server() for name, server in spec.config.mcp_servers.items()}
    definition = agent.definition.model_copy(update={"mcp_servers": {**own, **given}})
    if found := [*_policy_problems(spec, agent.definition), *_problems(definition, given)]:
        raise Invalid("An MCP server of the task cannot be used.", errors=found[:50])
    wanted = [name for name in unread(definition) if name in given]
    values = dict(spec.context.variables)
    question = DiscoverTools(tenant=call.tenant, agent=definition, servers=wanted, variables=values)
    lists = await call.services.discovery.discover(question)
    if lists.problems:
        found = [finding(f"{WHERE}/{name}", "unusable", why[:300]) for name, why in lists.problems.items()]
        raise Invalid("An MCP server of the task cannot be used.", errors=found)
    return replace(agent, definition=with_lists(definition, lists))


def _policy_problems(spec: TaskSpec, definition: AgentDefinition) -> list[Finding]:
    found: list[Finding] = []
    permitted = definition.task_mcp_hosts
    given = spec.config.mcp_servers
    if len(given) + len(definition.mcp_servers) > MOST_SERVERS:
        found.append(finding(WHERE, "too_many", f"with those of the agent there may be {MOST_SERVERS}"))
    for name, task_server in given.items():
        server = task_server.server()
        if name in definition.mcp_servers:
            found.append(finding(f"{WHERE}/{name}", "taken", "the agent has a server of this name"))
        if not any(fnmatchcase(server.host, pattern) for pattern in permitted):
            reason = "the agent does not permit servers at this host"
            found.append(finding(f"{WHERE}/{name}/url", "not_permitted", reason, permitted))
        # a caller must not send the tenant's secrets to a server of its own choice
        if unknown := sorted(server.variables() - spec.context.variables.keys()):
            reason = f"the task does not bring the variable {unknown[0]}"
            found.append(finding(f"{WHERE}/{name}/headers", "unknown_variable", reason, sorted(spec.context.variables)))
    return found


def _problems(definition: AgentDefinition, given: Mapping[str, McpServer]) -> list[Finding]:
    """The faults of these servers, by the same checks as for a definition."""
    return [
        finding("/config/" + one.field.replace(".", "/"), "invalid", one.message, one.allowed or None)
        for one in mcp_problems(definition)
        if one.field.split(".")[1] in given
    ]
