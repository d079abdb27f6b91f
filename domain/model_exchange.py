"""A request to a model and its answer, independent of the vendor."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from domain.content import AnyBlock, ReplyBlock, TextBlock, ToolCallBlock
from domain.json_object import JsonObject
from domain.sessions.session import Usage
from domain.sessions.step import StopReason


@dataclass(frozen=True)
class ModelMessage:
    role: Literal["user", "assistant"]
    content: list[AnyBlock]


@dataclass(frozen=True)
class ToolDefinition:
    """A tool as it is described to the model."""

    name: str
    description: str
    input_schema: JsonObject


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
THINKING_TOKENS: dict[Effort, int] = {
    "none": 0,
    "minimal": 1_024,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
}


class ModelSettings(BaseModel):
    """How the model of a task replies; what is left out is as the agent and the model have it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    temperature: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False, description="not with temperature")
    effort: Effort | None = Field(default=None, description="how much it thinks")
    tool_choice: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = Field(
        default="auto", description="auto, none, or for the first reply: required, or the tool that it must call"
    )
    parallel_tool_calls: bool = Field(default=True, description="whether a reply may call several tools")

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.temperature is not None and self.top_p is not None:  # models refuse the two together
            raise PydanticCustomError("excluded", "temperature and top_p exclude each other")
        return self

    @property
    def forces_call(self) -> bool:
        return self.tool_choice not in ("auto", "none")

    def thinking_tokens(self, usual: int) -> int:
        """Models refuse to think with another temperature, or if they must call a tool. What the caller chose counts,
        for all calls of the task, because a model cannot begin to think between a call and its result."""
        if self.temperature is not None or self.top_p is not None or self.forces_call:
            return 0
        return usual if self.effort is None else THINKING_TOKENS[self.effort]

    def for_reply(self, step: int, tools: Collection[str]) -> Self:
        """The settings for one reply: only the first must call a tool, or the task could never end."""
        named = self.forces_call and self.tool_choice != "required"
        if self.forces_call and (step > 1 or (named and self.tool_choice not in tools)):
            return self.model_copy(update={"tool_choice": "auto"})
        return self


@dataclass(frozen=True)
class ModelRequest:
    model: str
    max_tokens: int  # longest answer, without its thoughts
    system: str
    messages: list[ModelMessage]
    notes: list[str] = field(default_factory=list)  # for this call only, so they come after all that can be cached
    tools: list[ToolDefinition] = field(default_factory=list)
    settings: ModelSettings = ModelSettings()
    thinking_tokens: int = 0
    cached: bool = True  # the next request begins with the same messages

    @property
    def output_tokens(self) -> int:
        """The most output tokens that the answer may use, including its thoughts."""
        return self.max_tokens + self.thinking_tokens


@dataclass
class ModelResponse:
    """The result of one request, whole or interrupted."""

    content: list[ReplyBlock] = field(default_factory=list)
    stop_reason: StopReason | None = None
    usage: Usage = field(default_factory=Usage)
    text: str = ""  # so far
    thinking: str = ""
    # only in a handler's reply: whether it ends the session, and the status that it publishes
    ends: Literal["stop", "fail"] | None = None
    status: str | None = None
    immediate: bool = False  # the platform's own calls, at the beginning of a thread

    @property
    def calls(self) -> list[ToolCallBlock]:
        return [block for block in self.content if isinstance(block, ToolCallBlock)]

    def replace_text(self, text: str) -> None:
        """Replace the first text, or insert one before the calls if there is none. Thoughts and calls stay."""
        if text == self.answer():
            return
        texts = [place for place, block in enumerate(self.content) if isinstance(block, TextBlock)]
        calls = [place for place, block in enumerate(self.content) if isinstance(block, ToolCallBlock)]
        first = (texts or calls or [len(self.content)])[0]
        others = [block for place, block in enumerate(self.content) if place > first and place not in texts]
        kept = self.content[first : first + 1] if not texts else []
        self.content = [*self.content[:first], TextBlock(text=text), *kept, *others]

    def answer(self) -> str:
        return "\n\n".join(block.text for block in self.content if isinstance(block, TextBlock))
