"""Checks of a request: what the real API refuses is refused here, with the same status and a similar message."""

import re
from typing import Any

from offline.transcript import merge_messages
from offline.wire import ApiError, sign

CONTEXT_WINDOW = 200_000
_TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,128}$")
_BLOCKS = ("text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking", "search_result")


def check(body: Any) -> list[dict[str, Any]]:
    """Raise ApiError for a request that the real API refuses. Returns its messages as the model reads them."""
    if not isinstance(body, dict):
        raise _invalid("the request body must be a JSON object")
    _require(isinstance(body.get("model"), str) and body["model"], "model: field required")
    limit: Any = body.get("max_tokens")
    _require(isinstance(limit, int) and not isinstance(limit, bool), "max_tokens: field required")
    _require(limit > 0, f"max_tokens: {limit} must be greater than or equal to 1")
    _require(isinstance(body.get("messages"), list) and body["messages"], "messages: at least one message is required")
    _check_messages(body["messages"])
    _require(body["messages"][0]["role"] == "user", 'messages: first message must use the "user" role')
    prefilled = body["messages"][-1]["role"] == "assistant"  # newer models refuse it, so no code may rely on it
    messages = merge_messages(body["messages"])
    _check_pairs(messages)
    _require(not prefilled, "assistant message prefill is not supported: the last message must be a user message")
    _check_tools(body.get("tools") or [])
    return messages


def _invalid(message: str) -> ApiError:
    return ApiError(400, message)


def _require(condition: object, message: str) -> None:
    if not condition:
        raise _invalid(message)


# Messages are built only for what is wrong: a request may have thousands of blocks.


def _check_messages(messages: list[Any]) -> None:
    for index, message in enumerate(messages):
        role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if role not in ("user", "assistant"):
            raise _invalid(f"messages.{index}.role: Input should be 'user' or 'assistant'")
        if not isinstance(content, str | list):
            raise _invalid(f"messages.{index}.content: Input should be a valid string or list")
        if not content:
            raise _invalid(f"messages.{index}: {role} messages must have non-empty content")
        for number, block in enumerate([{"type": "text", "text": content}] if isinstance(content, str) else content):
            if (problem := _problem(role, block)) is not None:
                raise _invalid(f"messages.{index}.content.{number}{problem}")


def _problem(role: str, block: Any) -> str | None:
    """What is wrong with a block, after the place where it is."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text":
        if not isinstance(block.get("text"), str):
            return ".text.text: Field required"
        return None if block["text"].strip() else ": text content blocks must contain non-whitespace text"
    if kind == "tool_use":
        if role != "assistant":
            return ": `tool_use` blocks can only be in `assistant` messages"
        if not isinstance(block.get("id"), str) or not block["id"]:
            return ".tool_use.id: Field required"
        if not isinstance(block.get("name"), str):
            return ".tool_use.name: Field required"
        return None if isinstance(block.get("input"), dict) else ".tool_use.input: Input should be a valid dictionary"
    if kind == "tool_result":
        if role != "user":
            return ": `tool_result` blocks can only be in `user` messages"
        return None if isinstance(block.get("tool_use_id"), str) else ".tool_result.tool_use_id: Field required"
    if kind == "thinking":
        signed = block.get("signature") == sign(str(block.get("thinking", "")))
        return None if signed else ": Invalid `signature` in `thinking` block"
    if kind not in _BLOCKS:
        return f": Input tag {kind!r} does not match any of the expected tags: {', '.join(_BLOCKS)}"
    return None


def _check_pairs(messages: list[dict[str, Any]]) -> None:
    used: set[str] = set()
    calls: list[str] = []  # of the message before
    for index, message in enumerate(messages):
        if message["role"] == "user":
            _check_results(index, calls, message["content"])
            calls = []
        else:
            calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
            for call in calls:
                if call in used:
                    raise _invalid(f"messages.{index}: `tool_use` ids must be unique: {call}")
                used.add(call)
    _check_answered(len(messages) - 1, calls, [])


def _check_results(index: int, calls: list[str], content: list[dict[str, Any]]) -> None:
    answered = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
    if answered != calls:
        _check_answered(index - 1, calls, answered)
    if any(block["type"] != "tool_result" for block in content[: len(answered)]):
        raise _invalid(f"messages.{index}: `tool_result` blocks must come before any other content")


def _check_answered(index: int, calls: list[str], answered: list[str]) -> None:
    if missing := [call for call in calls if call not in answered]:
        raise _invalid(
            f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. "
            "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        )
    if surplus := [answer for answer in answered if answer not in calls or answered.count(answer) > 1]:
        raise _invalid(
            f"messages.{index + 1}: unexpected `tool_use_id` found in `tool_result` blocks: {surplus[0]}. "
            "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
        )


def _check_tools(tools: list[Any]) -> None:
    tools = [tool for tool in tools if not isinstance(tool, dict) or "type" not in tool]  # without the vendor's own
    names = [tool.get("name") if isinstance(tool, dict) else None for tool in tools]
    for index, (tool, name) in enumerate(zip(tools, names, strict=True)):
        if not isinstance(name, str) or not _TOOL_NAME.match(name):
            raise _invalid(f"tools.{index}.custom.name: String should match pattern '{_TOOL_NAME.pattern}'")
        schema = tool.get("input_schema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise _invalid(f"tools.{index}.custom.input_schema.type: Input should be 'object'")
    _require(len(set(names)) == len(names), "tools: Tool names must be unique.")
