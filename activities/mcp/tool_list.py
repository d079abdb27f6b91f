"""The tool list of an MCP server: read, bounded, and checked before any of it reaches a model."""

import json
import re
from typing import TYPE_CHECKING

from activities.egress import Fetcher
from activities.mcp.connection import LIST_SECONDS, McpFailure, connected, filled_headers
from activities.mcp.program import empty_place
from activities.mcp.untrusted import clean_json, clean_text, quoted
from activities.sandbox import Commands
from domain.agents.definition import AgentDefinition
from domain.agents.mcp_server import LONGEST_DESCRIPTION, MOST_TOOLS, McpServer, McpTool, tool_name
from domain.agents.variable_scope import Values, resolved
from domain.json_schema import run_check, schema_problems

if TYPE_CHECKING:
    from mcp.client.session import ClientSession
    from mcp_types import Tool

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
    """The tools of one server that the definition chooses; `values`: variables, as variable_scope keeps them."""
    server = agent.mcp_servers[name]
    headers = filled_headers(server, resolved(agent, values))
    async with empty_place(commands) as place, connected(fetcher, server, headers, LIST_SECONDS, place) as session:
        tools = await listed(session, server)
    _check_list(name, tools)
    for tool in tools:
        for problem in (await run_check(schema_problems, "input_schema", tool.input_schema))[:1]:
            raise McpFailure(f"{tool.name}: {problem.field} {problem.message}. {ADVICE}")
    return tools


async def listed(session: "ClientSession", server: McpServer) -> list[McpTool]:
    from mcp_types import PaginatedRequestParams

    found: list[McpTool] = []
    cursor, seen = None, 0
    for _ in range(MOST_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        seen += len(page.tools)
        if seen > MOST_LISTED:
            raise McpFailure(f"{server.host} lists more than {MOST_LISTED:,} tools.")
        found += [pinned(tool) for tool in page.tools if server.offers(tool.name) and not _needs_earlier_tasks(tool)]
        cursor = page.next_cursor
        if not cursor:
            return found
    raise McpFailure(f"The tool list of {server.host} has more than {MOST_PAGES} pages.")


def _needs_earlier_tasks(tool: "Tool") -> bool:
    """Whether a tool can be called only as a task of the version 2025-11-25, which belongs to one connection and would
    be lost with it: such a tool is not offered."""
    return tool.execution is not None and tool.execution.task_support == "required"


def pinned(tool: "Tool") -> McpTool:
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
    if len(tools) > MOST_TOOLS:
        raise McpFailure(f"It has {len(tools)} tools, and an agent may have {MOST_TOOLS} of one server. {ADVICE}")
    if sum(len(tool.model_dump_json()) for tool in tools) > LARGEST_LIST:
        raise McpFailure(f"Its tools are described in more than {LARGEST_LIST:,} characters. {ADVICE}")
    taken: set[str] = set()
    for tool in tools:
        if (name := tool_name(server, tool.name)) in taken:
            raise McpFailure(f"Two of its tools would be called {name}.")
        taken.add(name)
        if tool.input_schema.get("type") != "object":
            raise McpFailure(f"The arguments of {tool.name} are no object. {ADVICE}")
        if found := _COMBINED & tool.input_schema.keys():
            raise McpFailure(f"The arguments of {tool.name} have {min(found)}, which models do not accept. {ADVICE}")
        for name in tool.input_schema.get("properties") or ():
            if not _PROPERTY.fullmatch(name):
                reason = f"an argument called {quoted(name, 80)}, a name which models do not accept"
                raise McpFailure(f"{tool.name} has {reason}. {ADVICE}")
