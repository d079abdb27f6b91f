"""Subagents that are tools of a prompt: the terms under which a child works, and its entry in its parent's registry."""

import json
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from domain.agents.subagent_tool import ParentCommunication, ReceivingSide, SubagentTool
from domain.conversations.quoting import quoted_line
from domain.json_object import JsonObject

TERMINATED = "terminated"  # the status of a child that was ended permanently
ENABLED = frozenset({"true", "1", "yes"})
DEFAULT_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "minLength": 1, "description": "The whole task: it sees nothing of your own."},
        "attachments": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Paths of files of yours that it gets a copy of.",
        },
        "name": {"type": "string", "description": "What to call it."},
    },
    "required": ["message"],
    "additionalProperties": False,
}


class SubagentTerms(BaseModel):
    """The settings of the tool that started a child, as the child's session keeps them."""

    model_config = ConfigDict(frozen=True)

    resumable: bool = False
    blocking: bool = True
    parent_communication: ParentCommunication = ParentCommunication.IMPLICIT
    receives_messages: ReceivingSide = ReceivingSide.SIDE_A
    description: str = ""
    spawn_group_id: str = ""  # shared by the children of one response

    @property
    def explicit(self) -> bool:
        return self.parent_communication is ParentCommunication.EXPLICIT

    @classmethod
    def of(cls, tool: SubagentTool, description: str, spawn_group_id: str) -> "SubagentTerms":
        persistent = tool.resumable.model_dump(exclude={"max_instances"}) if tool.resumable else {}
        return cls(
            resumable=tool.resumable is not None,
            blocking=tool.blocking,
            description=description,
            spawn_group_id=spawn_group_id,
            **persistent,
        )


class RegistryEntry(BaseModel):
    """A child as its parent's registry lists it."""

    reference: str
    name: str
    agent: str
    title: str
    description: str
    resumable: bool
    blocking: bool
    thread_name: str
    spawn_group_id: str
    created_at: datetime
    status: str
    parent_communication: ParentCommunication


def is_enabled(tool: SubagentTool, variables: dict[str, str]) -> bool:
    """Whether an optional subagent is available: its variable must be true, 1 or yes."""
    return tool.optional is None or variables.get(tool.optional, "").strip().lower() in ENABLED


def first_message(arguments: JsonObject, field: str | None) -> str:
    """The child's first message: the argument that is mapped to it, else `message`, else all arguments."""
    value = arguments.get(field or "message", "")
    if not value and field is None:
        value = arguments
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def registry_message(entries: list[RegistryEntry]) -> str:
    """The list of its children that a parent's model is shown in every request."""
    # names and statuses are the children's own text: quoted, so that none of it reads as the platform's or the caller's
    lines = [
        f"- {quoted_line(entry.name)} (agent {entry.agent}, reference: {entry.reference}): {quoted_line(entry.status)}"
        + ("" if entry.resumable else "; it cannot be sent messages")
        for entry in entries
    ]
    return "<system_message>\nYour subagents:\n" + "\n".join(lines) + "\n</system_message>"
