"""Hooks: a user's functions that run at moments of a session. Here is what each is given and may answer."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

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


# these run inside the activity that they shape, so that nothing is shown or stored before them
INNER = frozenset(
    {HookPoint.FILTER_MESSAGES, HookPoint.BEFORE_RESULT, HookPoint.AFTER_SYSTEM_MESSAGE, HookPoint.BEFORE_REPLY}
)


class Moment(BaseModel):
    """What every hook is given."""

    model_config = ConfigDict(frozen=True)

    session_id: str
    conversation_id: str
    agent: str
    step: int
    key: str  # the same in every attempt of this very moment, for receivers that honour one


class BeforeModel(Moment):
    model: str


class RequestedCall(BaseModel):
    model_config = ConfigDict(frozen=True)

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


class ShownMessage(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: str
    kind: str  # user | note | assistant | tool_results | summary
    author: str
    text: str
    tools: list[str] = Field(default_factory=list)  # that it calls


class FilterMessages(Moment):
    """What the model is about to be shown, the oldest first."""

    messages: list[ShownMessage]


class OnEnd(Moment):
    """The session is about to end."""

    reason: str
    error: str | None


class HookReply(BaseModel):
    """What a hook may answer; None is the same as neither."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # a sentence that the model sees with its next call; of before_model, on_message and after_tool
    note: str | None = Field(default=None, max_length=MOST_TEXT)
    # of before_tool: the call is not run, and this is its result
    refusal: str | None = Field(default=None, min_length=1, max_length=MOST_TEXT)
    # of on_message, after_system_message and before_reply: what takes the place of the text
    text: str | None = Field(default=None, min_length=1, max_length=MOST_RESULT)
    # of before_result: what is stored in place of the result
    result: str | None = Field(default=None, min_length=1, max_length=MOST_RESULT)
    # of filter_messages: the ids of those that the model is not shown
    hide: list[str] = Field(default_factory=list, max_length=10_000)
