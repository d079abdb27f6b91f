"""MCP servers that a task brings for itself: over HTTP, at hosts that the definition of its agent permits."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from agents.problems import mcp_problems
from api.http.auth import Call
from api.http.problems import Finding, finding
from domain.agents.definition import MOST_MCP_SERVERS, AgentDefinition, McpServer
from domain.agents.mcp_discovery import DiscoverTools, lists_problem, unread, with_lists
from domain.agents.variables import seal_all
from domain.errors import Invalid
from domain.policy.rules import host_of
from domain.sessions.session import Effect
from domain.task import TaskSpec
from store.agents import TaskAgent

WHERE = "/config/mcp_servers"


def refuse_brought(spec: TaskSpec) -> None:
    """Refuse servers and credentials in a request that starts no task, because its next turn would not have them."""
    for name, given in (("mcp_servers", spec.config.mcp_servers), ("credentials", spec.config.credentials)):
        if given:
            problem = finding(
                f"/config/{name}", "unavailable", "only a task that is submitted on its own can bring any"
            )
            raise Invalid(f"This request cannot bring {name}.", errors=[problem])


async def add_servers(call: Call, spec: TaskSpec, agent: TaskAgent) -> TaskAgent:
    """The agent with the servers of the task, whose tool lists are read now."""
    if not spec.config.mcp_servers:
        return agent
    own = agent.definition.mcp_servers
    given = {name: server.server() for name, server in spec.config.mcp_servers.items()}
    definition = agent.definition.model_copy(update={"mcp_servers": {**own, **given}})
    # before the discovery, which would already send requests to the server
    if found := [*_policy_problems(call, spec, agent.definition), *_problems(definition, given)]:
        raise Invalid("An MCP server of the task cannot be used.", errors=found[:50])
    wanted = [name for name in unread(definition) if name in given]
    named = {variable for server in given.values() for variable in server.variables()}
    # only the ones that its headers name: the others are none of the server's business
    values = {name: value for name, value in spec.context.variables.items() if name in named}
    values = seal_all(call.services.keys, call.tenant, values)
    lists = await call.services.workflows.discover(DiscoverTools.of(call.tenant, definition, wanted, values))
    if lists.problems:
        found = [finding(f"{WHERE}/{name}", "unusable", why[:300]) for name, why in lists.problems.items()]
        raise Invalid("An MCP server of the task cannot be used.", errors=found)
    definition = with_lists(definition, lists)
    if problem := lists_problem(definition):
        raise Invalid("The MCP servers of the task cannot be used.", errors=[finding(WHERE, "too_many", problem)])
    return replace(agent, definition=definition)


def _policy_problems(call: Call, spec: TaskSpec, definition: AgentDefinition) -> list[Finding]:
    found: list[Finding] = []
    permitted = definition.task_mcp_hosts
    given = spec.config.mcp_servers
    if len(given) + len(definition.mcp_servers) > MOST_MCP_SERVERS:
        found.append(finding(WHERE, "too_many", f"with those of the agent there may be {MOST_MCP_SERVERS}"))
    for name, task_server in given.items():
        server = task_server.server()
        if name in definition.mcp_servers:
            found.append(finding(f"{WHERE}/{name}", "taken", "the agent has a server of this name"))
        if not any(fnmatchcase(server.host, pattern) for pattern in permitted):
            reason = "the agent does not permit servers at this host"
            found.append(finding(f"{WHERE}/{name}/url", "not_permitted", reason, permitted))
        if _is_open(server.url, call.settings.allow_private_hosts):
            found.append(finding(f"{WHERE}/{name}/url", "not_permitted", "the server of a task needs an https:// URL"))
        if Effect.READ in server.effects.values():  # it would run without approval, and again after a crash
            allowed = [one.value for one in Effect if one is not Effect.READ]
            reason = "only the definition of an agent can say that tools of a server just read"
            found.append(finding(f"{WHERE}/{name}/effects", "not_permitted", reason, allowed))
        # a caller must not send the tenant's secrets to a server of its own choice
        if unknown := sorted(server.variables() - spec.context.variables.keys()):
            reason = f"the task does not bring the variable {unknown[0]}"
            found.append(finding(f"{WHERE}/{name}/headers", "unknown_variable", reason, sorted(spec.context.variables)))
    return found


def _is_open(url: str, private: Iterable[str]) -> bool:
    """Whether requests would cross the internet unencrypted; `private`: hosts of the operator's own network."""
    try:
        place = urlsplit(url)
        names = {host_of(url), f"{host_of(url)}:{place.port or 80}"}
    except ValueError:
        return False  # another check refuses it
    return place.scheme == "http" and names.isdisjoint(one.lower() for one in private)


def _problems(definition: AgentDefinition, given: Mapping[str, McpServer]) -> list[Finding]:
    """The faults of these servers, by the same checks as for a definition."""
    return [
        finding("/config/" + one.field.replace(".", "/"), "invalid", one.message, one.allowed or None)
        for one in mcp_problems(definition)
        if one.field.split(".")[1] in given
    ]
