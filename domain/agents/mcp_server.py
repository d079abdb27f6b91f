"""MCP servers whose tools an agent has: their addresses, the headers sent to them, and their pinned tool lists."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from domain.agents.names import VARIABLE_NAME_PATTERN
from domain.agents.spelling import AgentPart
from domain.json_object import JsonObject
from domain.policy.subjects import host_of
from domain.sessions.step import Effect

MOST_SERVERS = 6
MOST_TOOLS = 128  # of one server
LONGEST_DESCRIPTION = 4_000
LONGEST_NAME = 64  # of a tool, for the model
PREFIX = "mcp__"
STDIO = "stdio"  # in place of a host, for a program

ServerName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,23}$")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
ToolPattern = Annotated[str, Field(min_length=1, max_length=200)]  # the server's name of a tool, with * and ?
Argument = Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"^[^\x00]*$")]
HeaderValue = Annotated[str, Field(pattern=r"^[\x20-\x7e]{1,1000}$")]

_VARIABLE = re.compile(r"\$\{(" + VARIABLE_NAME_PATTERN.strip("^$") + r")\}")
_PLAIN = re.compile(r"[^A-Za-z0-9_-]")


class McpTool(BaseModel):
    """A tool as its server described it when the agent's version was made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=200)  # as the server calls it
    description: str = Field(default="", max_length=LONGEST_DESCRIPTION)
    input_schema: JsonObject
    read_only: bool = False  # hints of the server
    idempotent: bool = False


class McpServer(AgentPart):
    """It has an address, or it is a program that the worker starts in the sandbox for each call."""

    url: str = Field(default="", max_length=2_048, exclude_if=lambda value: not value)
    command: list[Argument] = Field(default_factory=list, max_length=50, exclude_if=lambda value: not value)
    # A value may name variables of the agent, as in "Bearer ${TOKEN}", so that no version of the definition holds a
    # secret.
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict, max_length=20)
    only: list[ToolPattern] | None = Field(default=None, max_length=200)  # which of its tools; None: all
    effects: dict[ToolPattern, Effect] = Field(default_factory=dict, max_length=200)  # the first that matches counts
    trusted: bool = False  # trust the server's hints about the effects of its tools
    timeout_s: float = Field(default=60, ge=1, le=600)  # of one call
    tools: list[McpTool] | None = Field(default=None, max_length=MOST_TOOLS)  # the pinned list; None: not read yet

    @property
    def host(self) -> str:
        return STDIO if self.command else host_of(self.url)

    @property
    def unpinned(self) -> "McpServer":
        return self.model_copy(update={"tools": None})

    def offers(self, tool: str) -> bool:
        return self.only is None or any(fnmatchcase(tool, pattern) for pattern in self.only)

    def effect_of(self, tool: McpTool) -> Effect:
        """The effect of a tool: as the definition says; else, for a trusted server, by its hints; else the
        strictest."""
        for pattern, effect in self.effects.items():
            if fnmatchcase(tool.name, pattern):
                return effect
        if self.trusted and tool.read_only:
            return Effect.READ
        return Effect.IDEMPOTENT if self.trusted and tool.idempotent else Effect.ONCE

    def variables(self) -> set[str]:
        """The variables that its headers name."""
        return {name for value in self.headers.values() for name in _VARIABLE.findall(value)}

    def filled_headers(self, values: Mapping[str, str]) -> dict[str, str]:
        """The headers with these variables filled in; KeyError with the name of one that has no value."""
        return {
            name: _VARIABLE.sub(lambda found: values[found[1]], value).strip() for name, value in self.headers.items()
        }


def names_variable(value: str) -> bool:
    """Whether the value of a header has a variable in it."""
    return _VARIABLE.search(value) is not None


McpServers = Annotated[dict[ServerName, McpServer], Field(max_length=MOST_SERVERS)]


def tool_name(server: str, tool: str) -> str:
    """The name by which models and rules know a server's tool."""
    name = PREFIX + server + "__" + _PLAIN.sub("_", tool)
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


def pinned_tools(servers: Mapping[str, McpServer]) -> Iterator[tuple[str, str, McpServer, McpTool]]:
    """For each pinned tool: its name for the model, its server's name, the server and the tool."""
    for name, server in servers.items():
        for tool in server.tools or ():
            yield tool_name(name, tool.name), name, server, tool
