"""A session's messages as people read them: what was said, which tools were called and what they answered."""

import json
from typing import Any

from domain.messages import ASSISTANT, NOTE, SUMMARY, TOOL_RESULTS, USER, Node, text_of
from store import conversations, messages
from store.database import Pool
from store.sessions import SessionRow

PREVIEW = 2_000  # characters of a tool's arguments or result
Shown = list[dict[str, Any]]


async def display_messages(pool: Pool, session: SessionRow) -> Shown:
    """Its own part of the history, oldest first; before its first reply, the words it was opened with."""
    if own := await own_nodes(pool, session):
        return render(own)
    words = [await conversations.message_text(pool, session.tenant, message_id) for message_id in session.inbox]
    return [{"type": "user", "text": text} for text in words if text]


async def own_nodes(pool: Pool, session: SessionRow) -> list[Node]:
    """The nodes that a session added to the tree; a rerun also has those it began with, up to its base."""
    known = None if session.rerun else session.base_head
    nodes = await messages.path(pool, session.tenant, session.head, known)
    return [node for node in nodes if node.session_id == session.id]


def render(nodes: list[Node]) -> Shown:
    shown: Shown = []
    names: dict[str, str] = {}  # tool call id -> tool
    for node in nodes:
        step = {"step": node.step}
        if node.kind == ASSISTANT:
            for block in node.content()["content"]:
                if block["type"] == "text" and block["text"].strip():
                    shown.append({"type": "assistant", "author": node.author, "text": block["text"], **step})
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
            shown.append({"type": _NAMES[node.kind], "text": text_of(node), **step})
    return shown


_NAMES = {USER: "user", NOTE: "note", SUMMARY: "checkpoint"}


def _preview(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= PREVIEW else f"{text[:PREVIEW]}… [{len(text) - PREVIEW} more characters]"
