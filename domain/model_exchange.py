"""A request to a model and its answer, independent of the vendor."""

from dataclasses import dataclass, field
from typing import Literal

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


@dataclass(frozen=True)
class ModelRequest:
    model: str
    max_tokens: int  # longest answer, without its thoughts
    system: str
    messages: list[ModelMessage]
    notes: list[str] = field(default_factory=list)  # for this call only, so they come after all that can be cached
    tools: list[ToolDefinition] = field(default_factory=list)
    must_call: str | None = None  # the tool that the answer has to call
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
