"""A tool call as the model made it: its arguments, and the digest by which a repetition is known."""

import json
from typing import Any

from activities.tools.tool import Tool
from domain.limits.loops import call_digest
from domain.sessions.step import ToolRequest


def arguments_of(body: str, index: int) -> Any:
    """`body`: of the assistant node that holds the call."""
    calls = [block for block in json.loads(body)["content"] if block["type"] == "tool_use"]
    return calls[index]["input"]


def digest_of(request: ToolRequest, tool: Tool | None, body: str, state: str, text: str) -> str | None:
    """None says nothing about repetition: so does a recorded result, which comes sooner than it once did."""
    if tool is None and request.refusal is None:
        return None
    # where a long text was spilled to says nothing about what it is
    text = text.replace(request.node[-8:], "")
    return call_digest(request.name, arguments_of(body, request.index), state, text)
