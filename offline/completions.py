"""OpenAI's form of the same model: a request becomes one of Anthropic's form, which is checked as such, and the reply
goes the other way."""

import json
from collections.abc import Iterator
from typing import Any

from offline.wire import ApiError, Event, pieces

_FINISHED = {"tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
_TYPES = {401: "invalid_request_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


def to_messages(body: Any) -> Any:
    """The request in Anthropic's form, whose own checks follow."""
    try:
        return _to_messages(body)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ApiError(400, "We could not parse the JSON body of your request.") from None


def _to_messages(body: Any) -> dict[str, Any]:
    sent: dict[str, Any] = {
        "model": body["model"],
        "max_tokens": body.get("max_completion_tokens") or body.get("max_tokens") or 4_096,
        "messages": [],
        "stream": body.get("stream"),
    }
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        match role:
            case "system":
                sent["system"] = content
            case "tool":
                _add_result(sent["messages"], message)
            case "assistant":
                sent["messages"].append({"role": role, "content": _reply(message)})
            case _:
                parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
                sent["messages"].append({"role": role, "content": [_part(part) for part in parts]})
    _mark_cache(sent["messages"])
    sent["tools"] = [_tool(tool["function"]) for tool in body.get("tools") or []]
    if body.get("tool_choice") == "none":
        sent["tool_choice"] = {"type": "none"}
    if body.get("reasoning_effort") not in (None, "none"):
        sent["thinking"] = {"type": "adaptive"}
    return sent


def _mark_cache(messages: list[dict[str, Any]]) -> None:
    """The longest known beginning is always cached. What follows the last mark is the note about budgets."""
    blocks = [block for message in messages for block in message["content"]]
    for block in [block for block in blocks if not block.get("text", "").startswith("<budget>")][-1:]:
        block["cache_control"] = {"type": "ephemeral"}


def _part(part: Any) -> Any:
    """A picture or a file becomes a block with the same bytes."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            kind = "image"
        case {"type": "file", "file": {"filename": str(), "file_data": str(url)}}:
            kind = "document"
        case _:
            return part
    media_type, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def _add_result(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """The results of one reply are one message there."""
    text = message["content"]
    said = text.removeprefix("The call failed: ")
    block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": said, "is_error": said != text}
    if messages[-1]["role"] == "user":
        messages[-1]["content"].append(block)
    else:
        messages.append({"role": "user", "content": [block]})


def _reply(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if content else []
    for call in message.get("tool_calls") or []:
        function = call["function"]
        given = json.loads(function["arguments"])
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": given})
    return blocks


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    schema = function.get("parameters") or {"type": "object"}
    return {"name": function["name"], "description": function.get("description", ""), "input_schema": schema}


# the reply


def usage_of(message: dict[str, Any]) -> dict[str, Any]:
    used = message["usage"]
    read = used["cache_read_input_tokens"]
    prompt = used["input_tokens"] + used["cache_creation_input_tokens"] + read
    return {
        "prompt_tokens": prompt,
        "completion_tokens": used["output_tokens"],
        "total_tokens": prompt + used["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": read},
    }


def whole(message: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": None}
    for block in message["content"]:
        match block["type"]:
            case "text":
                said["content"] = block["text"]
            case "thinking":
                said["reasoning_content"] = block["thinking"]
            case "tool_use":
                function = {"name": block["name"], "arguments": json.dumps(block["input"])}
                call = {"id": block["id"], "type": "function", "function": function}
                said.setdefault("tool_calls", []).append(call)
    choice = {"index": 0, "message": said, "finish_reason": _finish(message)}
    return {**_head(message, "chat.completion"), "choices": [choice], "usage": usage_of(message)}


def _finish(message: dict[str, Any]) -> str:
    return _FINISHED.get(message["stop_reason"], "stop")


def _head(message: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{message['id'][4:]}", "object": kind, "created": 1_767_225_600, "model": message["model"]}


def chunks(message: dict[str, Any]) -> Iterator[Event]:
    """The message as chunks of a stream. Their names are those of Anthropic's events, which faults look for."""
    head = _head(message, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finished: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finished}], "usage": None}

    yield "message_start", chunk({"role": "assistant", "content": ""})
    calls = 0
    for block in message["content"]:
        if block["type"] == "tool_use":
            function = {"name": block["name"], "arguments": ""}
            begun = {"index": calls, "id": block["id"], "type": "function", "function": function}
            yield "content_block_start", chunk({"tool_calls": [begun]})
            for piece in pieces(block):
                yield "content_block_delta", chunk({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})
            calls += 1
        else:
            field = "content" if block["type"] == "text" else "reasoning_content"
            for piece in pieces(block):
                yield "content_block_delta", chunk({field: piece})
    yield "message_delta", chunk({}, _finish(message))
    yield "usage", {**head, "choices": [], "usage": usage_of(message)}
    yield "done", {}


def sse(event: Event) -> bytes:
    name, data = event
    return b"data: [DONE]\n\n" if name == "done" else f"data: {json.dumps(data)}\n\n".encode()


def break_arguments(data: dict[str, Any]) -> None:
    for call in data["choices"][0]["delta"].get("tool_calls", ()):
        call["function"]["arguments"] = '{"broken: ' + call["function"]["arguments"]


def error_body(error: ApiError, request_id: str) -> dict[str, Any]:
    too_long = error.message.startswith("prompt is too long")
    code = error.code or ("context_length_exceeded" if too_long else _CODES.get(error.status))
    type = _TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    message = error.message.replace("prompt is too long", "This model's maximum context length is exceeded")
    return {"error": {"message": message, "type": type, "param": None, "code": code}}
