"""A session's messages as people read them: what was said, which tools were called and what they returned."""

import json
from typing import Any

from domain.messages import ASSISTANT, NOTE, SUMMARY, TOOL_RESULTS, USER, Node, text_of

PREVIEW = 2_000  # characters of a tool's arguments or result
DisplayMessages = list[dict[str, Any]]


def display_messages(nodes: list[Node]) -> DisplayMessages:
    shown: DisplayMessages = []
    names: dict[str, str] = {}  # tool call id -> tool
    for node in nodes:
        if node.kind == USER and node.content().get("visible") is False:
            continue
        step = {"step": node.step} | ({"side": node.side} if node.side != "a" else {})
        if node.kind == ASSISTANT:
            for block in node.content()["content"]:
                if block["type"] == "text" and block["text"].strip():
                    shown.append({"type": ASSISTANT, "author": node.author, "text": block["text"], **step})
                elif block["type"] == "tool_use":
                    names[block["id"]] = block["name"]
                    call = {"type": "tool_call", "tool": block["name"], "input": _preview(block["input"])}
                    shown.append({**call, **step})
        elif node.kind == TOOL_RESULTS:
            for result in node.content()["results"]:
                tool = names.get(result["tool_use_id"], "")
                failed = bool(result["failed"])
                shown.append(
                    {"type": "tool_result", "tool": tool, "failed": failed, "text": _preview(result["text"]), **step}
                )
        else:
            silent = {"silent": True} if node.content().get("silent") else {}  # the platform put it there
            shown.append({"type": _NAMES[node.kind], "text": text_of(node), **silent, **step})
    return shown


def said_before_the_end(nodes: list[Node]) -> list[str]:
    """What the agent said in the course of a session, without its last reply, which is the session's output."""
    spoken = [node for node in nodes if node.kind == ASSISTANT and text_of(node)]
    return [message["text"].strip() for message in display_messages(spoken[:-1]) if message["type"] == ASSISTANT]


_NAMES = {USER: "user", NOTE: "note", SUMMARY: "checkpoint"}


def _preview(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= PREVIEW else f"{text[:PREVIEW]}… [{len(text) - PREVIEW} more characters]"
