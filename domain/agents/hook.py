"""Hooks: a user's functions that run at certain moments of a session; the input and the reply of each."""

from enum import StrEnum
from typing import Any

from pydantic import Field

from domain.frozen import Closed, Frozen

MOST_TEXT = 2_000  # characters of a note or a refusal
MOST_RESULT = 60_000  # characters of a message or a result that a hook puts in the place of another


class HookPoint(StrEnum):
    BEFORE_MODEL = "before_model"
    AFTER_MODEL = "after_model"
    BEFORE_TOOL = "before_tool"
    AFTER_TOOL = "after_tool"
    ON_MESSAGE = "on_message"
    ON_END = "on_end"
    AFTER_THREAD_CREATED = "after_thread_created"
    AFTER_SUBAGENT_CREATED = "after_subagent_created"
    FILTER_MESSAGES = "filter_messages"
    BEFORE_RESULT = "before_result"
    AFTER_SYSTEM_MESSAGE = "after_system_message"
    BEFORE_REPLY = "before_reply"


# These run inside the activity whose result they change, so that nothing is shown or stored before they have run.
INNER = frozenset(
    {HookPoint.FILTER_MESSAGES, HookPoint.BEFORE_RESULT, HookPoint.AFTER_SYSTEM_MESSAGE, HookPoint.BEFORE_REPLY}
)


class Moment(Frozen):
    """The fields that every hook receives."""

    session_id: str
    conversation_id: str
    agent: str
    step: int
    key: str  # equal in every attempt at this moment, so that receivers can drop repeats


class BeforeModel(Moment):
    model: str


class RequestedCall(Frozen):
    tool: str
    arguments: Any


class AfterModel(Moment):
    text: str
    calls: list[RequestedCall]


class BeforeReply(AfterModel):
    """The reply of a model or a handler is about to be stored."""


class SystemMessage(Moment):
    """The system prompt is assembled, and the model is about to be shown it."""

    text: str


class BeforeTool(Moment):
    tool: str
    arguments: Any


class AfterTool(Moment):
    tool: str
    arguments: Any
    state: str  # ok | failed | unknown | cancelled
    result: str


class OnMessage(Moment):
    """A message that is about to enter the context."""

    text: str


class BeforeResult(AfterTool):
    """The result of a call is about to be stored."""


class ThreadCreated(Moment):
    """The first session of a thread is about to begin."""

    thread_id: str
    parent_thread_id: str | None


class SubagentCreated(Moment):
    """A subagent was started, or sent a further message that began a session of its thread."""

    reference: str  # its thread
    child_session_id: str
    name: str
    subagent: str  # the agent


class ShownMessage(Frozen):
    id: str
    kind: str  # user | note | assistant | tool_results | summary
    author: str
    text: str
    tools: list[str] = Field(default_factory=list)  # names of the tools that it calls


class FilterMessages(Moment):
    """The messages that the model is about to be shown, oldest first."""

    messages: list[ShownMessage]


class OnEnd(Moment):
    """The session is about to end."""

    reason: str
    error: str | None


class HookReply(Closed):
    """The reply of a hook. None means the same as an empty reply."""

    # before_model, on_message, after_tool: a sentence that the model sees with its next call
    note: str | None = Field(default=None, max_length=MOST_TEXT)
    # before_tool: the call does not run, and this text is its result
    refusal: str | None = Field(default=None, min_length=1, max_length=MOST_TEXT)
    # on_message, after_system_message, before_reply: the text to use instead
    text: str | None = Field(default=None, min_length=1, max_length=MOST_RESULT)
    # before_result: the result to store instead
    result: str | None = Field(default=None, min_length=1, max_length=MOST_RESULT)
    # filter_messages: ids of the messages to hide from the model
    hide: list[str] = Field(default_factory=list, max_length=10_000)
