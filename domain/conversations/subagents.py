"""Delegation: one mechanism behind several tools, and the messages between a session, its activities and its
children; handoff; the terms of a subagent that is a tool. The texts of the tools are in subagent_texts.py."""

import json
from enum import StrEnum

from errand.models import RegistryEntry
from pydantic import BaseModel, Field

from domain.agents.definition import ParentCommunication, ReceivingSide, Sides, SubagentTool
from domain.conversations.mailbox import quote_line
from domain.frozen import Frozen
from domain.json_object import JsonObject
from domain.sessions.session import AgentRef, LineCall, ResumePoint, SessionRef, ToolOutcome


class DelegationTool(StrEnum):
    """The tools through which a model hands work on, or waits for it."""

    DELEGATE = "delegate"  # inline: a line of the parent's own session
    TASK = "task"  # a separate session; the parent waits
    ASYNC_DELEGATE = "async_delegate"  # resumed by name; the outcome is held for a fire
    ASYNC_TASK = "async_task"  # pulled with async_task_result or gather, else held
    SUBAGENT = "subagent"  # a tool named after its agent; waited for or not, as its configuration says
    SUBAGENT_CREATE = "subagent_create"  # an instance that can be addressed again
    SUBAGENT_MESSAGE = "subagent_message"  # a further message to such an instance
    START_BACKGROUND = "start_background_agent"  # reports by messages; only its failure is delivered
    GATHER = "gather"  # waits for several, a bounded time
    ATTEMPT = "attempt"  # the platform's own: the task itself, once more, in a copy of its workspace


def inline_path(line: str, step: int, index: int) -> str:
    """The id of the line of an inline delegate: below the line that calls it, named after the call."""
    return f"{line}/{step}.{index}"


class DelegationCall(LineCall):
    """The calls of one step that start or await subagents; their arguments stay in the assistant node."""

    model: str  # the parent's current one, for children without their own
    node: str
    indexes: list[int]
    resumed: bool = False  # a new run took the session over: inline lines may have begun
    immediate: bool = False  # the platform's own calls, at the beginning of a thread


class InlineLine(BaseModel):
    """A line of the parent's own session, which does the work of a delegate."""

    agent: AgentRef
    models: list[str]
    hooked: bool = False  # the agent has hooks
    resume: ResumePoint | None = None


class Begun(BaseModel):
    """How a delegation call has begun: it is settled, or a line runs, or sessions are waited for, as its planner
    decided. The workflow does the same whatever the tool."""

    index: int
    tool: str
    settled: ToolOutcome | None = None
    child: str | None = None  # the session that it started
    wakes: bool = False  # the child's outcome wakes this session
    line: InlineLine | None = None
    awaited: list[str] = Field(default_factory=list)  # sessions that have not ended
    any_of: bool = False  # the first that ends is enough
    timeout_s: float | None = None  # None: as long as it takes


class BegunBatch(BaseModel):
    calls: list[Begun]


class LineEnd(BaseModel):
    """How an inline line ended."""

    head: str | None
    failed: str | None = None  # why it ended without an answer
    previous: str | None = None  # the result of its last step
    previous_step: int = 0


class Settle(BaseModel):
    """A delegation call that had to wait can be answered now: by its line, by its child, or by those it gathered."""

    ref: SessionRef
    node: str
    index: int
    tool: str
    step: int
    child: str | None = None
    promoted: bool = False  # nobody waits for the child any more: its outcome goes to the mailbox
    line: LineEnd | None = None


# Handoff: an agent passes its thread, with all of its history, to another agent that has a human side.


ALREADY_HANDED_OVER = "Not handed over to {}: this response already handed the thread over to {}."


class Successor(Frozen):
    """The agent that runs a session after a handoff, with its models and tools."""

    agent: AgentRef
    models: list[str]
    sides: Sides | None = None  # None: a plain agent
    tools: list[str] | None = None  # None: those of its definition


class HandOver(BaseModel):
    """A call of a handoff tool; its arguments stay in the assistant node."""

    ref: SessionRef
    agent: AgentRef
    model: str  # the line's current one, for an agent without its own
    node: str
    index: int
    name: str  # of the agent that takes over
    summary: str = ""
    step: int = 0
    before: str | None = None  # the agent to which the same response already handed it over


class HandOverOutcome(BaseModel):
    outcome: ToolOutcome
    to: Successor | None = None  # None: it was refused


def describe_handover(name: str) -> str:
    return f"Handed over to {name}."


# Subagents that are tools of a prompt: the terms under which a child works, and its entry in its parent's registry.


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


class SubagentTerms(Frozen):
    """The settings of the tool that started a child, as the child's session keeps them."""

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
        f"- {quote_line(entry.name)} (agent {entry.agent}, reference: {entry.reference}): {quote_line(entry.status)}"
        + ("" if entry.resumable else "; it cannot be sent messages")
        for entry in entries
    ]
    return "<system_message>\nYour subagents:\n" + "\n".join(lines) + "\n</system_message>"
