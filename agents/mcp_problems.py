"""Faults in the MCP servers of a definition that can be found without contacting them."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from agents.problems import FieldProblem
from domain.agents.definition import AgentDefinition
from domain.agents.mcp_server import PREFIX, McpServer, names_variable

# the transport sets these itself
_RESERVED = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding", "accept", "accept-encoding"}
)
_UNUSABLE = re.compile(r"[^A-Za-z0-9_*?-]")  # characters that no name of a tool has, and no pattern for one
_SECRET_NAMES = ("auth", "cookie", "key", "secret", "token")


def names_a_server(permission: str, definition: AgentDefinition) -> bool:
    """Whether a rule is about tools of one of its servers, whose list may not be known yet."""
    return any(permission.startswith(f"{PREFIX}{name}__") for name in definition.mcp_servers)


def rule_problem(permission: str, definition: AgentDefinition) -> str | None:
    """Why a rule about tools of one of its servers can never match: it has the server's own spelling."""
    if names_a_server(permission, definition) and (usual := _UNUSABLE.sub("_", permission)) != permission:
        return f"no tool is ever called {permission!r}: its name here is {usual!r}"
    return None


def mcp_problems(definition: AgentDefinition) -> Iterator[FieldProblem]:
    known = tuple(definition.all_variables)
    for index, rule in enumerate(definition.permissions):
        if reason := rule_problem(rule.permission, definition):
            yield FieldProblem(f"permissions.{index}.permission", reason)
    for name, server in definition.mcp_servers.items():
        where = f"mcp_servers.{name}"
        if bool(server.url) == bool(server.command):
            yield FieldProblem(where, "needs either a url or a command")
        elif server.command and server.headers:
            yield FieldProblem(f"{where}.headers", "are sent to a url, and this server is a program")
        elif server.url and (reason := _url_problem(server.url)):
            yield FieldProblem(f"{where}.url", reason)
        yield from _header_problems(where, server)
        for variable in sorted(server.variables() - {*known}):
            yield FieldProblem(f"{where}.headers", f"the agent has no variable {variable!r}", known)


def _url_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "must be an http:// or https:// URL with a host"
    if parts.username is not None or parts.password is not None:
        return "has a user name or password: put them into a header, with a variable"
    return "has a fragment, which no server sees" if parts.fragment else None


def _header_problems(where: str, server: McpServer) -> Iterator[FieldProblem]:
    for name, value in server.headers.items():
        lower = name.lower()
        if lower in _RESERVED or lower.startswith("mcp-"):
            yield FieldProblem(f"{where}.headers.{name}", "is set by the protocol itself")
        elif not names_variable(value) and any(part in lower for part in _SECRET_NAMES):
            reason = "looks like a secret: a definition is stored in plain text. Name a variable, as in ${TOKEN}"
            yield FieldProblem(f"{where}.headers.{name}", reason)
