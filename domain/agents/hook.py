"""Hooks: a user's functions that run at six moments of a session. Here is what each is given and may answer."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

MOST_TEXT = 2_000  # characters of a note or a refusal


class HookPoint(StrEnum):
    BEFORE_MODEL = "before_model"
    AFTER_MODEL = "after_model"
    BEFORE_TOOL = "before_tool"
    AFTER_TOOL = "after_tool"
    ON_MESSAGE = "on_message"
    ON_END = "on_end"


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
