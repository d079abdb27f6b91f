"""Tool calls and their artifacts. `tool_called` belongs to the task contract: its name and fields never change."""

import json

from pydantic import Field

from domain.events.base import Event
from domain.json_object import JsonObject
from domain.policy.rules import Rule

LONG_ARGUMENTS = 4_000  # characters, as in store/functions/with_arguments.sql


def shown_arguments(given: JsonObject) -> JsonObject | None:
    """The arguments of a call, for its event. Arguments that are too long are only in the trace."""
    return given if len(json.dumps(given, ensure_ascii=False)) <= LONG_ARGUMENTS else None


class ToolCalled(Event):
    type = "tool_called"
    decisive = True
    tool: str
    args: str  # the call as one line
    arguments: JsonObject | None = Field(default=None, exclude_if=lambda value: value is None)  # None: they are long


class ToolReturned(Event):
    type = "tool_returned"
    decisive = True
    tool: str
    state: str  # ok | failed | unknown | cancelled
    preview: str
    rule: Rule | None = Field(default=None, exclude_if=lambda value: value is None)  # the rule that refused the call


class McpToolChanged(Event):
    """A tool of an MCP server is not what it was when the agent's version was made: it was not called."""

    type = "mcp_tool_changed"
    tool: str
    server: str
    gone: bool  # the server does not list it any more


class WorkspaceNotKept(Event):
    """Files that this worker could not save because they exceed a limit. Another worker would see their former version,
    or none."""

    type = "workspace_not_kept"
    count: int
    files: dict[str, str]  # the first ones: path -> reason


class ArtifactSaved(Event):
    type = "artifact_saved"
    decisive = True
    name: str
    artifact_type: str
    file_id: str
    size: int
    url: str | None = Field(default=None, exclude_if=lambda value: value is None)  # set if the artifact is an address
