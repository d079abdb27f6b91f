"""discover_tools: reads the tool lists of an agent's MCP servers before a version of the agent is made."""

import asyncio
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from temporalio import activity

from activities.attempt import with_heartbeats
from activities.egress import Fetcher
from activities.mcp.connection import LIST_SECONDS, McpFailure, connect_server, fill_headers
from activities.mcp.program import empty_place
from activities.sandbox import Commands
from activities.tools.tool import clean_json, clean_text, quote_text
from domain.agents.definition import (
    LONGEST_DESCRIPTION,
    MOST_MCP_TOOLS,
    AgentDefinition,
    McpServer,
    McpTool,
    VariableKind,
    mcp_tool_name,
)
from domain.agents.mcp_discovery import (
    DiscoveredTools,
    DiscoverTools,
    lists_problem,
    unread,
    with_known_lists,
    with_lists,
)
from domain.agents.variables import Values, name_shared, open_secrets, resolve_values
from domain.json_schema import run_check, schema_problems
from domain.redaction import Redactor, is_sealed
from domain.sealing import KeyRing, SealingError
from store import agents, variables
from store.agents import SHIPPED
from store.database import Pool

if TYPE_CHECKING:
    from mcp.client.session import ClientSession
    from mcp_types import Tool


RETRY_SECONDS = 30.0


@dataclass
class ToolLists:
    """`deployments`: the variables that the deployment sets for all threads."""

    _pool: Pool
    _fetcher: Fetcher
    _commands: Commands
    _keys: KeyRing
    _deployments: Mapping[str, str]

    @activity.defn(name="discover_tools")
    @with_heartbeats
    async def discover_tools(self, wanted: DiscoverTools) -> DiscoveredTools:
        return await self.discover(wanted.tenant, wanted.agent, wanted.servers, wanted.variables)

    def can_fill(self, agent: AgentDefinition, server: str) -> bool:
        """Whether the headers of a server need no tenant's value."""
        return agent.mcp_servers[server].variables() <= resolve_values(agent, name_shared({}, self._deployments)).keys()

    async def discover(
        self, tenant: str, agent: AgentDefinition, servers: list[str], given: Mapping[str, str] = MappingProxyType({})
    ) -> DiscoveredTools:
        """`given`: variables that a task brings, as they are stored."""
        stored = {} if tenant == SHIPPED else await variables.values_of_tenant(self._pool, tenant)
        try:
            tenants = {**stored, **open_secrets(self._keys, tenant, stored)}
            own = {**given, **open_secrets(self._keys, tenant, given)}
        except SealingError as error:
            return DiscoveredTools(problems=dict.fromkeys(servers, f"The tenant's secrets cannot be read: {error}."))
        values = {**name_shared(tenants, self._deployments), **own}

        known = resolve_values(agent, values)
        kinds = {**agent.all_variables, **agent.variables}
        secret = {name for name, value in stored.items() if is_sealed(value)}
        secret |= {name for name, one in kinds.items() if one.kind is VariableKind.SECRET}

        async def read(name: str) -> list[McpTool] | McpFailure:
            hide = Redactor(known[one] for one in secret & known.keys() & agent.mcp_servers[name].variables())
            try:
                found = await read_list(self._fetcher, self._commands, agent, name, values)
                return [_redact_tool(one, hide) for one in found]
            except McpFailure as error:
                return McpFailure(hide.text(str(error)))

        found = dict(zip(servers, await asyncio.gather(*map(read, servers)), strict=True))
        return DiscoveredTools(
            tools={name: one for name, one in found.items() if isinstance(one, list)},
            problems={name: str(one) for name, one in found.items() if isinstance(one, McpFailure)},
        )


def _redact_tool(tool: McpTool, hide: Redactor) -> McpTool:
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

    async def pin_lists(self, agent: AgentDefinition) -> AgentDefinition:
        if not agent.mcp_servers:
            self.problems.pop(agent.name, None)
            return agent
        before = await agents.find_current(self._pool, SHIPPED, agent.name)
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


# The tool list of an MCP server: read, bounded, and checked before any of it reaches a model.


ADVICE = "Choose among them with `only`."
MOST_PAGES = 20
MOST_LISTED = 2_000  # tools, before the definition chooses among them
LARGEST_SCHEMA = 30_000  # characters of JSON
_COMBINED = {"anyOf", "oneOf", "allOf"}  # beside the type: model servers refuse every request with such a tool
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # else model servers refuse every request
LARGEST_LIST = 200_000  # characters of JSON, of all tools of a server together


async def read_list(
    fetcher: Fetcher, commands: Commands, agent: AgentDefinition, name: str, values: Values
) -> list[McpTool]:
    """The tools of one server that the definition chooses; `values`: variables, as a thread stores them."""
    server = agent.mcp_servers[name]
    headers = fill_headers(server, resolve_values(agent, values))
    async with empty_place(commands) as place, connect_server(fetcher, server, headers, LIST_SECONDS, place) as session:
        tools = await list_tools(session, server)
    _check_list(name, tools)
    for tool in tools:
        for problem in (await run_check(schema_problems, "input_schema", tool.input_schema))[:1]:
            raise McpFailure(f"{tool.name}: {problem.field} {problem.message}. {ADVICE}")
    return tools


async def list_tools(session: "ClientSession", server: McpServer) -> list[McpTool]:
    from mcp_types import PaginatedRequestParams

    found: list[McpTool] = []
    cursor, seen = None, 0
    for _ in range(MOST_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        seen += len(page.tools)
        if seen > MOST_LISTED:
            raise McpFailure(f"{server.host} lists more than {MOST_LISTED:,} tools.")
        found += [pin_tool(tool) for tool in page.tools if server.offers(tool.name) and not _needs_earlier_tasks(tool)]
        cursor = page.next_cursor
        if not cursor:
            return found
    raise McpFailure(f"The tool list of {server.host} has more than {MOST_PAGES} pages.")


def _needs_earlier_tasks(tool: "Tool") -> bool:
    """Whether a tool can be called only as a task of the version 2025-11-25, which belongs to one connection and would
    be lost with it: such a tool is not offered."""
    return tool.execution is not None and tool.execution.task_support == "required"


def pin_tool(tool: "Tool") -> McpTool:
    """The description of a tool that the platform stores. A call compares it with the server's present description."""
    if not tool.name.isprintable() or clean_text(tool.name) != tool.name or not 0 < len(tool.name) <= 200:
        raise McpFailure(f"It lists a tool whose name cannot be used: {tool.name[:40]!r}.")
    schema = clean_json(tool.input_schema)
    if len(json.dumps(schema)) > LARGEST_SCHEMA:
        raise McpFailure(f"The input schema of {tool.name} is larger than {LARGEST_SCHEMA:,} characters.")
    hints = tool.annotations
    return McpTool(
        name=tool.name,
        description=clean_text(tool.description or "")[:LONGEST_DESCRIPTION],
        input_schema=schema,
        read_only=bool(hints and hints.read_only_hint),
        idempotent=bool(hints and hints.idempotent_hint),
    )


def _check_list(server: str, tools: list[McpTool]) -> None:
    if len(tools) > MOST_MCP_TOOLS:
        raise McpFailure(f"It has {len(tools)} tools, and an agent may have {MOST_MCP_TOOLS} of one server. {ADVICE}")
    if sum(len(tool.model_dump_json()) for tool in tools) > LARGEST_LIST:
        raise McpFailure(f"Its tools are described in more than {LARGEST_LIST:,} characters. {ADVICE}")
    taken: set[str] = set()
    for tool in tools:
        if (name := mcp_tool_name(server, tool.name)) in taken:
            raise McpFailure(f"Two of its tools would be called {name}.")
        taken.add(name)
        if tool.input_schema.get("type") != "object":
            raise McpFailure(f"The arguments of {tool.name} are no object. {ADVICE}")
        if found := _COMBINED & tool.input_schema.keys():
            raise McpFailure(f"The arguments of {tool.name} have {min(found)}, which models do not accept. {ADVICE}")
        for name in tool.input_schema.get("properties") or ():
            if not _PROPERTY.fullmatch(name):
                reason = f"an argument called {quote_text(name, 80)}, a name which models do not accept"
                raise McpFailure(f"{tool.name} has {reason}. {ADVICE}")
