"""OpenAI's form of the same model: a request becomes one of Anthropic's form, and the reply goes the other way. What
the real API refuses is refused here, with the same status and a similar message.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from offline.wire import ApiError, Event, pieces

_ID = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
_KNOWN = frozenset(
    {
        *(
            "model",
            "messages",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "stream",
            "stream_options",
            "temperature",
        ),
        *("top_p", "max_tokens", "max_completion_tokens", "reasoning_effort", "response_format"),
    }
)
_FINISHED = {"tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
_TYPES = {401: "invalid_request_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


def to_messages(body: Any) -> Any:
    """The request in Anthropic's form, whose own checks follow."""
    if not isinstance(body, dict):
        raise _invalid("We could not parse the JSON body of your request.")
    if unknown := sorted(body.keys() - _KNOWN):
        raise _invalid(f"Unrecognized request argument supplied: {unknown[0]}", unknown[0], "unknown_parameter")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _invalid("Invalid 'messages': empty array.", "messages", "empty_array")
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or 4_096
    sent: dict[str, Any] = {
        "model": body.get("model"),
        "max_tokens": limit,
        "messages": [],
        "stream": body.get("stream"),
    }
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role == "system" and index == 0:
            sent["system"] = _text(index, message)
        elif role == "user":
            content = message.get("content")
            given = content if isinstance(content, list) else [{"type": "text", "text": _text(index, message)}]
            parts = [_part(index, part) for part in given]
            sent["messages"].append({"role": "user", "content": parts})
        elif role == "tool":
            _add_result(sent["messages"], index, message)
        elif role == "assistant":
            sent["messages"].append({"role": "assistant", "content": _reply(index, message)})
        else:
            raise _invalid(f"Invalid value: '{role}'.", f"messages[{index}].role", "invalid_value")
    _mark_cache(sent["messages"])
    sent["tools"] = [_tool(index, tool) for index, tool in enumerate(body.get("tools") or [])]
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


def _invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, code=code, param=param)


def _text(index: int, message: dict[str, Any]) -> str:
    content = message.get("content")
    if not isinstance(content, str):
        raise _invalid(f"Invalid type for 'messages[{index}].content'", f"messages[{index}].content", "invalid_type")
    return content


def _part(index: int, part: Any) -> Any:
    """A picture or a file becomes a block with the same bytes."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            kind = "image"
        case {"type": "file", "file": {"filename": str(), "file_data": str(url)}}:
            kind = "document"
        case _:
            return part
    media_type, marked, data = url.removeprefix("data:").partition(";base64,")
    if not marked:
        raise _invalid("Invalid file data: a data URL is expected.", f"messages[{index}].content", "invalid_value")
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def _add_result(messages: list[dict[str, Any]], index: int, message: dict[str, Any]) -> None:
    """The results of one reply are one message there. Which calls they answer is checked there too."""
    text = _text(index, message)
    said = text.removeprefix("The call failed: ")
    block = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": said}
    block["is_error"] = said != text
    before: dict[str, Any] = messages[-1] if messages else {"role": ""}
    if before["role"] == "assistant":
        messages.append({"role": "user", "content": [block]})
    elif before["role"] == "user" and before["content"][-1]["type"] == "tool_result":
        before["content"].append(block)
    else:
        raise _invalid("messages with role 'tool' must be a response to a preceding message with 'tool_calls'.")


def _reply(index: int, message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    calls = message.get("tool_calls") or []
    if content is None and not calls:
        raise _invalid(f"Invalid value for 'content': expected a string, got null. (messages[{index}])")
    blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if content else []
    for call in calls:
        if call.get("type") != "function" or not _ID.match(str(call.get("id"))) or len(call["id"]) > 40:
            raise _invalid(f"Invalid 'messages[{index}].tool_calls': a call needs a type, and an id of 40 characters")
        try:
            arguments = json.loads(call["function"]["arguments"])
        except (KeyError, TypeError, ValueError):
            raise _invalid(f"Invalid 'messages[{index}].tool_calls': arguments must be a JSON text") from None
        blocks.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
    return blocks


def _tool(index: int, tool: Any) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    if not isinstance(function, dict) or not _ID.match(str(function.get("name"))):
        raise _invalid(f"Invalid 'tools[{index}].function.name'", f"tools[{index}].function.name", "invalid_value")
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
    return {"error": {"message": message, "type": type, "param": error.param, "code": code}}
