"""A model request as scripts read it: what the user asked, what the model called, what the tools returned."""

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

_AGENT = re.compile(r'^You are the agent "([^"]+)"', re.MULTILINE)
_WORKSPACE = "<workspace>"
_SO_FAR = re.compile(r"(\d+) tool calls? so far")
_SUMMARISED = re.compile(
    r"The request was: (.*?)(?:\n\nWhat the latest calls returned:|\n\n## |\n</checkpoint>|\Z)", re.DOTALL
)


class CallResult(NamedTuple):
    """A tool call of the model and its real result."""

    name: str
    input: dict[str, Any]
    text: str
    is_error: bool = False


@dataclass(frozen=True)
class Transcript:
    model: str
    system: str
    tools: frozenset[str]  # names of the offered tools; none if the request forbids their use
    messages: list[dict[str, Any]]  # adjacent messages of one role are merged, and content is always a list of blocks
    texts: list[str]  # of the user's messages that have a text
    opening: str = ""  # the first text block: the same in every request of one conversation
    request: str = ""  # the user's last request
    notes: list[str] = field(default_factory=list)  # messages added while tools ran
    # the replies since the last request, each with the message that has its results
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    first: str = ""  # the user's first request
    workspace: str = ""  # what files of the workspace say, before the first request
    follow_up: bool = False  # whether an earlier request was already answered

    @classmethod
    def of(cls, body: dict[str, Any], messages: list[dict[str, Any]] | None = None) -> "Transcript":
        """`messages`: those of the body, if they are merged already."""
        messages = messages or merge_messages(body["messages"])
        start = next(  # the user's last message that answers no tool call: it starts a new exchange
            index
            for index in reversed(range(len(messages)))
            # a result is never after other content: the checks refuse that
            if messages[index]["role"] == "user" and messages[index]["content"][0]["type"] != "tool_result"
        )
        later = messages[start + 1 :]
        texts = {
            index: text
            for index, message in enumerate(messages)
            if message["role"] == "user" and (text := plain(message["content"]))
        }
        forbidden = (body.get("tool_choice") or {}).get("type") == "none"
        return cls(
            model=body["model"],
            system=plain(body.get("system") or ""),
            tools=frozenset() if forbidden else frozenset(tool["name"] for tool in body.get("tools") or []),
            messages=messages,
            texts=list(texts.values()),
            opening=next((b["text"] for b in messages[0]["content"] if _is_said(b)), ""),
            request=_asked(texts.get(start, "")),
            notes=[text for index, text in texts.items() if index > start],
            pairs=list(zip(later[::2], later[1::2], strict=False)),
            first=_asked(texts.get(0, "")),
            follow_up=start > 0,
            workspace=next((b["text"] for b in messages[0]["content"] if b.get("text", "").startswith(_WORKSPACE)), ""),
        )

    @property
    def agent(self) -> str | None:
        match = _AGENT.search(self.system)
        return match[1] if match else None

    @cached_property
    def assistant_messages(self) -> int:
        return [message["role"] for message in self.messages].count("assistant")

    def rounds(self, start: int = 0) -> Iterator[list[CallResult]]:
        """The results of each reply since the last request, without the first `start` of these replies."""
        return (_results(a, u) for a, u in self.pairs[start:])

    @cached_property
    def results(self) -> list[CallResult]:
        """The results of the whole transcript, including earlier requests."""
        pairs = zip(self.messages, self.messages[1:], strict=False)
        return [result for a, u in pairs if a["role"] == "assistant" for result in _results(a, u)]

    @cached_property
    def done_before(self) -> int:
        """Number of tool calls that a summary counts and the messages no longer contain."""
        counts = [int(match[1]) for text in self.texts for match in _SO_FAR.finditer(text)]
        return max(counts, default=0)

    @property
    def last_answer(self) -> str:
        answers = [plain(m["content"]) for m in self.messages if m["role"] == "assistant"]
        return next((answer for answer in reversed(answers) if answer), "")


def plain(content: str | list[dict[str, Any]]) -> str:
    """The text of a message: its text blocks, without the notes about budgets and the files of the workspace."""
    if isinstance(content, str):
        return content
    return "\n\n".join(block["text"] for block in content if _is_said(block))


def _is_said(block: dict[str, Any]) -> bool:
    return block["type"] == "text" and not block["text"].startswith(("<budget>", _WORKSPACE))


def merge_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge adjacent messages of one role, as the model reads them."""
    result: list[dict[str, Any]] = []
    for message in messages:
        role, content = message["role"], message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if result and result[-1]["role"] == role:
            blocks = result.pop()["content"] + blocks
        result.append(message if blocks is content else {"role": role, "content": blocks})
    return result


def _asked(text: str) -> str:
    """The request itself, even if a summary has replaced it."""
    summarised = _SUMMARISED.search(text)
    return summarised[1] if summarised else text


def _results(assistant: dict[str, Any], user: dict[str, Any]) -> list[CallResult]:
    answers = {b["tool_use_id"]: b for b in user["content"] if b["type"] == "tool_result"}
    return [
        CallResult(call["name"], call["input"], _result_text(answer.get("content") or ""), bool(answer.get("is_error")))
        for call in assistant["content"]
        if call["type"] == "tool_use" and (answer := answers.get(call["id"]))
    ]


def _result_text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(describe_file(block) if "source" in block else block.get("text", "") for block in content)


def describe_file(block: dict[str, Any]) -> str:
    """What the model sees of a picture or a document: its type, and which bytes arrived."""
    data = base64.b64decode(block["source"]["data"], validate=True)
    kind = block["source"]["media_type"]
    return f"[{block['type']} {kind}, {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}]"


def files_seen(messages: list[dict[str, Any]]) -> list[str]:
    """All files of the request, also those of tools' results, in their order."""
    found: list[str] = []
    for block in [block for message in messages for block in message["content"]]:
        inner = block.get("content")
        found += [describe_file(one) for one in (inner if isinstance(inner, list) else [block]) if "source" in one]
    return found
