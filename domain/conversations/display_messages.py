"""A session's messages as people read them: texts, tool calls and their results."""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from domain.content import ReplyBlock, TextBlock, ToolCallBlock
from domain.messages import Node, NoteBody, ReplyBody, ResultsBody, SummaryBody, UserBody, text_of
from domain.redaction import shortened

PREVIEW = 2_000  # characters of a tool's arguments or result


def _absent(value: Any) -> bool:
    return value is None


class DisplayMessage(BaseModel):
    """One message; fields that do not belong to its type are left out."""

    model_config = ConfigDict(frozen=True)

    type: Literal["user", "note", "checkpoint", "assistant", "tool_call", "tool_result"]
    author: str | None = Field(default=None, exclude_if=_absent, description="of `assistant`: the agent")
    tool: str | None = Field(default=None, exclude_if=_absent, description="of `tool_call` and `tool_result`")
    failed: bool | None = Field(default=None, exclude_if=_absent, description="of `tool_result`")
    input: str | None = Field(default=None, exclude_if=_absent, description="of `tool_call`: its arguments, shortened")
    text: str | None = Field(default=None, exclude_if=_absent, description="not of `tool_call`; a result is shortened")
    silent: bool | None = Field(default=None, exclude_if=_absent, description="true: the platform put it there")
    step: int | None = Field(default=None, exclude_if=_absent, description="missing before the first model call")
    side: str | None = Field(default=None, exclude_if=_absent, description="of the second side, `b`")


def display_messages(nodes: list[Node]) -> list[DisplayMessage]:
    shown: list[DisplayMessage] = []
    names: dict[str, str] = {}  # tool call id -> tool
    for node in nodes:
        names |= {call.id: call.name for call in node.body.calls} if isinstance(node.body, ReplyBody) else {}
        place = {"step": node.step, "side": node.side if node.side != "a" else None}
        shown += [message.model_copy(update=place) for message in _messages(node, names)]
    return shown


def _messages(node: Node, names: dict[str, str]) -> list[DisplayMessage]:
    match node.body:
        case ReplyBody(content=content):
            return [message for block in content if (message := _said(node.author, block)) is not None]
        case ResultsBody(results=results):
            return [
                DisplayMessage(
                    type="tool_result",
                    tool=names.get(one.call_id, ""),
                    failed=one.failed,
                    text=shortened(one.text, PREVIEW),
                )
                for one in results
            ]
        case UserBody() as body:
            return [DisplayMessage(type="user", text=body.text, silent=body.silent or None)] if body.visible else []
        case NoteBody(text=text):
            return [DisplayMessage(type="note", text=text)]
        case SummaryBody(text=text):
            return [DisplayMessage(type="checkpoint", text=text)]


def _said(author: str, block: ReplyBlock) -> DisplayMessage | None:
    if isinstance(block, ToolCallBlock):
        arguments = json.dumps(block.arguments, ensure_ascii=False)
        return DisplayMessage(type="tool_call", tool=block.name, input=shortened(arguments, PREVIEW))
    if isinstance(block, TextBlock) and block.text.strip():
        return DisplayMessage(type="assistant", author=author, text=block.text)
    return None


def said_before_the_end(nodes: list[Node], output: str | None, *, typed: bool = False) -> list[str]:
    """The agent's replies in the course of a session, without the last one where that is the session's output. The
    message of a stop tool is an output beside the replies; a typed output is the last reply in another form."""
    spoken = [node for node in nodes if isinstance(node.body, ReplyBody) and text_of(node)]
    if spoken and (typed or _letters(text_of(spoken[-1])) == _letters(output or "")):
        spoken.pop()
    said = display_messages(spoken)
    return [message.text.strip() for message in said if message.type == "assistant" and message.text]


def _letters(text: str) -> list[str]:
    """An output is its reply without the characters that cannot be shown."""
    return [one for one in text if one.isprintable() and not one.isspace()]
