"""Delegation: one mechanism behind several tools, and the messages between a session, its activities and its
children."""

from enum import StrEnum

from pydantic import BaseModel, Field

from domain.sessions.session import AgentRef, SessionRef
from domain.sessions.step import ResumePoint, ToolOutcome


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


def inline_path(line: str, step: int, index: int) -> str:
    """The id of the line of an inline delegate: below the line that calls it, named after the call."""
    return f"{line}/{step}.{index}"


class DelegationCall(BaseModel):
    """The calls of one step that start or await subagents; their arguments stay in the assistant node."""

    ref: SessionRef
    agent: AgentRef
    above: list[AgentRef] = Field(default_factory=list)
    line: str
    model: str  # the parent's current one, for children without their own
    node: str
    indexes: list[int]
    step: int
    resumed: bool = False  # a new run took the session over: inline lines may have begun
    immediate: bool = False  # the platform's own calls, at the beginning of a thread


class Begun(BaseModel):
    """The result of one delegation call: settled at once, a child to wait for, a line to run, or ids to gather."""

    index: int
    kind: DelegationTool
    settled: ToolOutcome | None = None
    child: str | None = None
    waits: bool = Field(default=False, exclude_if=lambda value: not value)  # for the child, whatever the tool
    wakes: bool = False  # the child's outcome wakes this session
    agent: AgentRef | None = None
    models: list[str] = Field(default_factory=list)
    ids: list[str] = Field(default_factory=list)  # sessions to gather that had not ended when the call began
    any_of: bool = False
    timeout_s: float = 0
    hooked: bool = Field(default=False, exclude_if=lambda value: not value)  # the agent of an inline line has hooks
    resume: ResumePoint | None = Field(default=None, exclude_if=lambda value: value is None)  # of an inline line


class BegunBatch(BaseModel):
    calls: list[Begun]


class Settle(BaseModel):
    """A delegation call that had to wait can be answered now."""

    ref: SessionRef
    node: str
    index: int
    tool: DelegationTool
    step: int
    name: str | None = None  # of the tool, where it is named after its agent
    child: str | None = None
    promoted: bool = False
    head: str | None = None  # of an inline line
    failed: str | None = None  # why an inline line ended without an answer
    previous: str | None = None  # the result of its last step
    previous_step: int = 0
