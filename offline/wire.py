"""The format of Anthropic Messages: errors, whole messages, and the events of a stream."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from offline.reply import Reply
from offline.usage import InputUsage, tokens

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_WORD = re.compile(r"\S*\s*")
_JSON_PIECE = 64
Event = tuple[str, dict[str, Any]]


class ApiError(Exception):
    """A response with an error status."""

    def __init__(
        self, status: int, message: str, headers: dict[str, str] | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = _TYPES.get(status, "api_error")
        self.code = code  # in OpenAI's form
        self.message = message
        self.headers = headers or {}


def error_body(error: ApiError, request_id: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": error.type, "message": error.message}, "request_id": request_id}


def break_arguments(data: dict[str, Any]) -> None:
    if data["delta"]["type"] == "input_json_delta":
        data["delta"]["partial_json"] = '{"broken: ' + data["delta"]["partial_json"]


def sign(thinking: str) -> str:
    """A stand-in for the real signature: the checks refuse thinking that was changed."""
    return base64.b64encode(hashlib.sha256(b"offline:" + thinking.encode()).digest()).decode()


def message(reply: Reply, body: dict[str, Any], usage: InputUsage, request: bytes) -> dict[str, Any]:
    """The whole message. Its ids derive from the request, so that a retry gets the same ones."""
    identity = hashlib.sha256(request).hexdigest()
    content, cut = _content(reply, body, identity)
    calls = any(block["type"] == "tool_use" for block in content)
    return {
        "id": f"msg_{identity[:24]}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": "max_tokens" if cut else reply.stop_reason or ("tool_use" if calls else "end_turn"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage.input_tokens,
            "cache_creation_input_tokens": usage.cache_creation_input_tokens,
            "cache_read_input_tokens": usage.cache_read_input_tokens,
            "output_tokens": max(1, tokens(sum(len(_write_block(block)) for block in content))),
        },
    }


def events(message: dict[str, Any]) -> Iterator[Event]:
    """The message as events of a stream, in the order of the real API."""
    usage = message["usage"]
    start = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield "message_start", {"type": "message_start", "message": start}
    yield "ping", {"type": "ping"}
    for index, block in enumerate(message["content"]):
        yield from _block_events(index, block)
    yield (
        "message_delta",
        {
            "type": "message_delta",
            "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
            "usage": {"output_tokens": usage["output_tokens"]},
        },
    )
    yield "message_stop", {"type": "message_stop"}


def sse(event: Event) -> bytes:
    name, data = event
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _content(reply: Reply, body: dict[str, Any], identity: str) -> tuple[list[dict[str, Any]], bool]:
    blocks: list[dict[str, Any]] = []
    thinking = body.get("thinking") or {}
    if thinking.get("type") in ("enabled", "adaptive"):
        thought = reply.thinking or _default_thinking(reply)
        blocks.append({"type": "thinking", "thinking": thought, "signature": sign(thought)})
    room = body["max_tokens"] * 4
    if len(reply.text) > room:
        return [*blocks, {"type": "text", "text": reply.text[:room]}], True
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for index, call in enumerate(reply.calls):
        blocks.append(
            {"type": "tool_use", "id": f"toolu_{identity[:20]}{index:02d}", "name": call.name, "input": call.input}
        )
    return blocks, False


def _default_thinking(reply: Reply) -> str:
    if reply.calls:
        return f"The next step needs {', '.join(call.name for call in reply.calls)}."
    return "Nothing more is needed; time to answer."


def _write_block(block: dict[str, Any]) -> str:
    """The text that the deltas of a block make up."""
    text: str = json.dumps(block["input"]) if block["type"] == "tool_use" else block[block["type"]]
    return text


def pieces(block: dict[str, Any]) -> list[str]:
    written = _write_block(block)
    if block["type"] == "tool_use":
        return [written[at : at + _JSON_PIECE] for at in range(0, len(written), _JSON_PIECE)]
    found: list[str] = _WORD.findall(written)
    return ["".join(found[at : at + 3]) for at in range(0, len(found), 3) if found[at]]


def _block_events(index: int, block: dict[str, Any]) -> Iterator[Event]:
    kind = block["type"]
    empty = {
        "text": {"type": "text", "text": ""},
        "thinking": {"type": "thinking", "thinking": "", "signature": ""},
        "tool_use": {**block, "input": {}},
    }[kind]
    yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": empty}
    delta, field = {
        "text": ("text_delta", "text"),
        "thinking": ("thinking_delta", "thinking"),
        "tool_use": ("input_json_delta", "partial_json"),
    }[kind]
    for piece in pieces(block):
        yield _delta(index, {"type": delta, field: piece})
    if kind == "thinking":
        yield _delta(index, {"type": "signature_delta", "signature": block["signature"]})
    yield "content_block_stop", {"type": "content_block_stop", "index": index}


def _delta(index: int, delta: dict[str, Any]) -> Event:
    return "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
