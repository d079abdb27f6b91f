"""The two sides of an agent: who takes the turns on each, when a turn is over, and which tools end the session."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from domain.agents.spelling import AgentPart
from domain.content import ToolCallBlock
from domain.json_object import JsonObject

PROMPT_NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]{0,62}$"
PromptName = Annotated[str, Field(pattern=PROMPT_NAME_PATTERN)]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
PropertyName = Annotated[str, Field(min_length=1, max_length=100)]
HandlerName = Annotated[str, Field(min_length=1, max_length=100)]


class SideKind(StrEnum):
    HUMAN = "human"  # people, or a program that calls the API
    PROMPT = "prompt"  # a model with a prompt
    HANDLER = "handler"  # Python code that is given each turn


class Binding(AgentPart):
    """A tool whose call controls the session. In a file the bare name is enough."""

    name: ToolName
    message_property: PropertyName | None = None  # the argument that becomes the message
    attachments_property: PropertyName | None = None  # the argument that lists paths of files to attach

    def message(self, arguments: JsonObject, text: str = "") -> str:
        """The message of a call: the mapped argument; without a mapping the response's text, else all arguments."""
        if self.message_property is None:
            return text.strip() or (json.dumps(arguments, ensure_ascii=False) if arguments else "")
        value = arguments.get(self.message_property, "")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _by_tool(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


ToolBinding = Annotated[Binding, BeforeValidator(_by_tool)]


class Side(AgentPart):
    """One side of an agent: exactly one of `human`, `prompt` and `handler`."""

    human: bool = False
    prompt: PromptName | None = None  # a file in agents/prompts, or the agent's own text
    handler: HandlerName | None = None
    label: str | None = Field(default=None, max_length=100)
    stop_on_response: bool = True  # a response without tool calls ends the side's turn
    stop_tool: ToolName | None = None  # so does a call of this tool
    stop_tool_response_property: PropertyName | None = None  # its argument that holds the turn's outcome
    max_steps: int | None = Field(default=None, ge=1, le=10_000)  # limit for this side in one session
    session_stop: ToolBinding | None = None  # ends the session successfully
    session_fail: ToolBinding | None = None  # ends it as failed
    session_status: ToolBinding | None = None  # publishes a status and ends nothing

    @property
    def kind(self) -> SideKind:
        if self.human:
            return SideKind.HUMAN
        return SideKind.HANDLER if self.handler is not None else SideKind.PROMPT

    def turn_text(self, calls: Sequence[ToolCallBlock]) -> str | None:
        """The outcome that the stop tool's call gives for the turn; None if there is no such call or no mapped
        argument."""
        if self.stop_tool is None or self.stop_tool_response_property is None:
            return None
        called: JsonObject = next((call.arguments for call in calls if call.name == self.stop_tool), {})
        value = called.get(self.stop_tool_response_property)
        return value if isinstance(value, str) or value is None else json.dumps(value, ensure_ascii=False)

    def bindings(self) -> dict[str, Binding]:
        """The bindings that are set, by their field."""
        found = {name: getattr(self, name) for name in ("session_stop", "session_fail", "session_status")}
        return {name: binding for name, binding in found.items() if binding is not None}


def side_from_word(value: Any) -> Any:
    """`side_b: human` is the short form of `side_b: {human: true}`."""
    return {"human": True} if value == SideKind.HUMAN else value
