"""Content of messages, in blocks of our own form. Only activities/model/anthropic.py translates them for the vendor."""

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from domain.json_object import JsonObject


class ContentBlock(BaseModel):
    model_config = ConfigDict(frozen=True)


class TextBlock(ContentBlock):
    type: Literal["text"] = "text"
    text: str


class ThinkingBlock(ContentBlock):
    """A thought of a model. Only the same model accepts it back, unchanged and with its signature."""

    type: Literal["thinking"] = "thinking"
    text: str = ""
    proof: str = ""
    hidden: bool = False  # the text is not shown: only the proof contains it


class ToolCallBlock(ContentBlock):
    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    arguments: JsonObject


class QueuedTool(BaseModel):
    """A tool call that waits in an inbox."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    arguments: JsonObject = Field(default_factory=dict)


class ToolResultBlock(ContentBlock):
    type: Literal["tool_result"] = "tool_result"
    call_id: str
    text: str
    failed: bool


ReplyBlock = Annotated[TextBlock | ThinkingBlock | ToolCallBlock, Field(discriminator="type")]
AnyBlock = TextBlock | ThinkingBlock | ToolCallBlock | ToolResultBlock

_PARTS = TypeAdapter(list[TextBlock])


def join_text(blocks: list[TextBlock]) -> str:
    return "\n\n".join(block.text for block in blocks)


def parts_of(*texts: str) -> str:
    """Texts as the inbox stores them."""
    return json.dumps([{"type": "text", "text": text} for text in texts])


def text_of_parts(parts: str | None) -> str:
    """The text of a message of the inbox."""
    return join_text(_PARTS.validate_json(parts)) if parts else ""
