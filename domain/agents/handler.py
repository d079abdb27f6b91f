"""Handler sides: Python code that takes the turns of a side; the input and the reply of one turn."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import from_json, to_json

from domain.agents.definition import ToolName
from domain.frozen import Closed, Frozen
from domain.json_object import JsonObject
from domain.messages import (
    ASSISTANT,
    NOTE,
    SUMMARY,
    USER,
    Node,
    ResultsBody,
    ToolResultBlock,
    calls_of,
    text_of,
    turn_text_of,
)
from domain.sessions.session import SideName

MOST_CALLS = 32


class Speaker(StrEnum):
    SELF = "self"  # the handler's own side
    OTHER = "other"  # the other side
    USER = "user"  # the one who gave the task, or wrote to the session
    PLATFORM = "platform"  # a note for this side alone


def _as_json(arguments: JsonObject) -> JsonObject:
    """The arguments as they are stored. Values that are not JSON are refused here, where the handler can see its
    mistake."""
    plain: JsonObject = from_json(to_json(arguments))
    return plain


class HandlerCall(Closed):
    """A tool call that a handler asks for; it runs like a model's, under the same rules."""

    name: ToolName
    input: Annotated[JsonObject, AfterValidator(_as_json)] = Field(default_factory=dict)


class AnsweredCall(HandlerCall):
    result: str = ""
    failed: bool = False


class HandlerMessage(Frozen):
    """One message of the conversation so far. The other side's tool calls are not shown."""

    speaker: Speaker
    name: str = ""  # the label of the side, or who wrote to the session
    text: str = ""
    calls: list[AnsweredCall] = Field(default_factory=list)  # of the handler's own side


class HandlerTurn(Frozen):
    """The input of a handler: everything that its side may see."""

    key: str  # equal in every attempt at this turn, so that receivers can drop repeats
    session_id: str
    agent: str
    side: SideName
    label: str | None = None
    step: int
    messages: list[HandlerMessage]
    variables: dict[str, str] = Field(default_factory=dict)
    tools: list[str] = Field(default_factory=list)  # names of the tools that it may call
    subagents: list[str] = Field(default_factory=list)  # agents that subagent_create can start


class HandlerReply(Closed):
    """The reply of a handler: a text ends its turn; calls run, and their results are in its next turn."""

    text: str = ""
    calls: list[HandlerCall] = Field(default_factory=list, max_length=MOST_CALLS)
    ends: Literal["stop", "fail"] | None = None  # ends the session; the text becomes its output or its error
    status: str | None = Field(default=None, min_length=1, max_length=500)  # only published; it does not end anything

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.text.strip() and not self.calls:
            raise ValueError("a handler's reply needs a text or a tool call")
        return self


Handler = Callable[[HandlerTurn], Awaitable[HandlerReply]]


def as_handler_sees(nodes: list[Node], side: SideName) -> list[HandlerMessage]:
    """The path of messages as one side may see it, each of its own calls with its result."""
    found: list[HandlerMessage] = []
    for node in nodes:
        own = node.side == side
        if node.kind == USER:
            found.append(HandlerMessage(speaker=Speaker.USER, name=node.author, text=text_of(node)))
        elif node.kind == ASSISTANT and own:
            made = [AnsweredCall(name=call.name, input=call.arguments) for call in calls_of(node)]
            found.append(HandlerMessage(speaker=Speaker.SELF, name=node.author, text=text_of(node), calls=made))
        elif node.kind == ASSISTANT:
            found.append(HandlerMessage(speaker=Speaker.OTHER, name=node.author, text=turn_text_of(node)))
        elif isinstance(node.body, ResultsBody) and own and found and found[-1].calls:
            found[-1] = _add_results(found[-1], node.body.results)
        elif node.kind in (NOTE, SUMMARY) and own:
            found.append(HandlerMessage(speaker=Speaker.PLATFORM, text=text_of(node)))
    return found


def _add_results(message: HandlerMessage, results: list[ToolResultBlock]) -> HandlerMessage:
    calls = [
        call.model_copy(update={"result": one.text, "failed": one.failed})
        for call, one in zip(message.calls, results, strict=False)
    ]
    return message.model_copy(update={"calls": calls})
