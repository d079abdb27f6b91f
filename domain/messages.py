"""The message tree's nodes, and how a path of them becomes the request that one side's model is sent."""

import json
from typing import Any

from pydantic import BaseModel, ConfigDict

from domain.sessions.step import CallState, ToolCallResult

USER, NOTE, ASSISTANT, TOOL_RESULTS, SUMMARY = "user", "note", "assistant", "tool_results", "summary"

SILENT = "silent"  # a message of the inbox that the platform or a subagent put there: it enters the tree as the user's
NOTHING_SAID = "(The other side ended its turn without a message.)"
CONVERSATION_BEGINS = "(The conversation begins here.)"
SYSTEM = "system"  # of an inbox message: it comes from another agent, and enters the context as a note
UNANSWERED = "No result: the call was interrupted before it could report. It may or may not have happened."


class Node(BaseModel):
    """One immutable message; `body` is JSON whose shape follows from `kind`."""

    model_config = ConfigDict(frozen=True)

    id: str
    parent: str | None
    session_id: str
    kind: str
    author: str = ""
    line: str = "main"
    side: str = "a"  # the side of the agent whose turn it belongs to
    step: int
    body: str

    def content(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.body)
        return value


def text_of(node: Node) -> str:
    """The readable text of a node."""
    body = node.content()
    if node.kind == ASSISTANT:
        return "\n\n".join(block["text"] for block in body["content"] if block["type"] == "text").strip()
    if node.kind == USER:
        return "\n\n".join(part["text"] for part in body["parts"])
    if node.kind == TOOL_RESULTS:
        return "\n\n".join(result["text"] for result in body["results"])
    return str(body["text"])


def calls_of(node: Node) -> list[dict[str, Any]]:
    """The tool calls an assistant node asks for, in order."""
    if node.kind != ASSISTANT:
        return []
    return [block for block in node.content()["content"] if block["type"] == "tool_use"]


def answered(node: Node, results: list[ToolCallResult]) -> dict[str, Any]:
    """The tool_results body that answers every call of an assistant node."""
    immediate = {"immediate": True} if node.content().get("immediate") else {}
    return {**answer_calls(calls_of(node), results), **immediate}


def answer_calls(calls: list[dict[str, Any]], results: list[ToolCallResult]) -> dict[str, Any]:
    """The same for a list of calls, with a synthetic result where none is known."""
    known = {result.index: result for result in results if result.state is not CallState.STARTED}
    answers = []
    for index, call in enumerate(calls):
        result = known.get(index)
        answers.append(
            {
                "tool_use_id": call["id"],
                "text": result.text if result is not None else UNANSWERED,
                "failed": result is None or result.state is not CallState.OK,
            }
        )
    return {"results": answers}


def turn_text_of(node: Node) -> str:
    """What an assistant node says to the other side: its stop tool's message, else its text."""
    return str(node.content().get("turn_text") or text_of(node)).strip()


def _blocks(node: Node, model: str, side: str) -> tuple[str, list[dict[str, Any]]]:
    if node.side != side and node.kind != USER:
        # the other side is the user here: its text is shown, its tool calls, results and notes are not
        text = turn_text_of(node) if node.kind == ASSISTANT else ""
        return "user", [{"type": "text", "text": text}] if text else []
    body = node.content()
    if body.get("immediate"):  # calls of the platform: a model is shown what came of them, as text
        results = body["results"] if node.kind == TOOL_RESULTS else []
        return "user", [{"type": "text", "text": result["text"]} for result in results if result["text"]]
    if node.kind == ASSISTANT:
        # a thinking block is signed for the model that thought it
        foreign = body.get("model") != model
        thoughts = ("thinking", "redacted_thinking")
        return "assistant", [block for block in body["content"] if not (foreign and block["type"] in thoughts)]
    if node.kind == TOOL_RESULTS:
        return "user", [
            {
                "type": "tool_result",
                "tool_use_id": result["tool_use_id"],
                "content": result["text"] or "(no output)",
                "is_error": result["failed"],
            }
            for result in body["results"]
        ]
    if node.kind == USER:
        return "user", [{"type": "text", "text": part["text"]} for part in body["parts"]]
    if node.kind == SUMMARY:
        return "user", [{"type": "text", "text": f"<checkpoint>\n{body['text']}\n</checkpoint>"}]
    origin = f' origin="{body["origin"]}"' if "origin" in body else ""
    return "user", [{"type": "text", "text": f"<system_message{origin}>\n{body['text']}\n</system_message>"}]


def since_checkpoint(nodes: list[Node], side: str = "a") -> list[Node]:
    """What a side's model is shown: its newest checkpoint, and all that follows. Each side writes its own."""
    for place in range(len(nodes) - 1, -1, -1):
        if nodes[place].kind == SUMMARY and nodes[place].side == side:
            return nodes[place:]
    return nodes


def render(nodes: list[Node], model: str, side: str = "a") -> list[dict[str, Any]]:
    """The messages of a request as one side sees them: itself as assistant, the other side and people as user.

    Neighbours of one role are merged, since the API demands alternation. It also demands that a user begins; and where
    there are two sides, the model must be given something to answer even if the other side said nothing.
    """
    messages: list[dict[str, Any]] = []
    for node in since_checkpoint(nodes, side):
        role, blocks = _blocks(node, model, side)
        if not blocks:
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(blocks)
        else:
            messages.append({"role": role, "content": blocks})
    if messages and messages[0]["role"] == "assistant":
        messages.insert(0, _user(CONVERSATION_BEGINS))
    if messages and messages[-1]["role"] == "assistant" and any(node.side != side for node in nodes):
        messages.append(_user(NOTHING_SAID))
    return messages


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def mark_cacheable(messages: list[dict[str, Any]]) -> None:
    """Set the moving cache points: the end of the newest user message, and of the one before it."""
    users = [message for message in messages if message["role"] == "user"]
    for message in users[-2:]:
        message["content"][-1] = {**message["content"][-1], "cache_control": {"type": "ephemeral"}}


def shorten_results(nodes: list[Node], limit: int) -> list[Node]:
    """The same path with long tool results cut: what a checkpoint is written from when the whole does not fit."""
    shorter = []
    for node in nodes:
        if node.kind == TOOL_RESULTS:
            body = node.content()
            for result in body["results"]:
                if len(result["text"]) > limit:
                    result["text"] = result["text"][:limit] + f"\n[… {len(result['text']) - limit} characters left out]"
            node = node.model_copy(update={"body": json.dumps(body)})
        shorter.append(node)
    return shorter
