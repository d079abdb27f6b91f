"""The model call of the peers whose users write it, through the anthropic SDK: one whole answer, or a streamed one."""

from typing import Any

import anthropic

Blocks = list[dict[str, Any]]

LOOK: Any = {
    "name": "look",
    "description": "Look at the thing with this number.",
    "input_schema": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
}

streams = False  # set once, by the process that runs the loop
client = anthropic.AsyncAnthropic()  # address and key come from the environment, as usual for the SDK


async def ask(messages: list[dict[str, Any]]) -> Blocks:
    """The content of the answer."""
    chat: Any = messages
    request: Any = {"model": "offline", "max_tokens": 4_096, "messages": chat, "tools": [LOOK]}
    if streams:
        async with client.messages.stream(**request) as stream:
            reply = await stream.get_final_message()
    else:
        reply = await client.messages.create(**request)
    return [block.to_dict(mode="json") for block in reply.content]


def call_of(blocks: Blocks) -> dict[str, Any] | None:
    return next((block for block in blocks if block["type"] == "tool_use"), None)


def text_of(blocks: Blocks) -> str:
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def tool_result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": text}]}
