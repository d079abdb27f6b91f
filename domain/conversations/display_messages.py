"""A session's messages as people read them: texts, tool calls and their results."""

import json

from errand.models import DisplayMessage, ShownFile

from domain.messages import (
    Node,
    NoteBody,
    ReplyBlock,
    ReplyBody,
    ResultsBody,
    SummaryBody,
    TextBlock,
    ToolCallBlock,
    UserBody,
    files_in,
)
from domain.pictures import FileBlock
from domain.redaction import shorten_and_redact

PREVIEW = 2_000  # characters of a tool's arguments or result


def display_messages(nodes: list[Node]) -> list[DisplayMessage]:
    shown: list[DisplayMessage] = []
    names: dict[str, str] = {}  # tool call id -> tool
    for node in nodes:
        names |= {call.id: call.name for call in node.body.calls} if isinstance(node.body, ReplyBody) else {}
        place = {"step": node.step, "side": node.side if node.side != "a" else None}
        shown += [message.model_copy(update=place) for message in _messages(node, names)]
    return shown


def _messages(node: Node, names: dict[str, str]) -> list[DisplayMessage]:
    match node.body:
        case ReplyBody(content=content):
            return [message for block in content if (message := _show_said(node.author, block)) is not None]
        case ResultsBody(results=results):
            return [
                DisplayMessage(
                    type="tool_result",
                    tool=names.get(one.call_id, ""),
                    failed=one.failed,
                    text=shorten_and_redact(one.text, PREVIEW),
                    files=_files(one.files),
                )
                for one in results
            ]
        case UserBody() as body:
            files = _files(files_in(body.parts))
            shown = DisplayMessage(type="user", text=body.text, silent=body.silent or None, files=files)
            return [shown] if body.visible else []
        case NoteBody(text=text):
            return [DisplayMessage(type="note", text=text)]
        case SummaryBody(text=text):
            return [DisplayMessage(type="checkpoint", text=text)]


def _files(blocks: list[FileBlock]) -> list[ShownFile] | None:
    return [ShownFile(**dict(block)) for block in blocks] or None


def _show_said(author: str, block: ReplyBlock) -> DisplayMessage | None:
    if isinstance(block, ToolCallBlock):
        arguments = json.dumps(block.arguments, ensure_ascii=False)
        return DisplayMessage(type="tool_call", tool=block.name, input=shorten_and_redact(arguments, PREVIEW))
    if isinstance(block, TextBlock) and block.text.strip():
        return DisplayMessage(type="assistant", author=author, text=block.text)
    return None


def find_said_before(replies: list[ReplyBody], output: str | None, *, typed: bool = False) -> list[str]:
    """The texts of a session's replies, without the last reply where that is the session's output. The message of a
    stop tool is an output beside the replies; a typed output is the last reply in another form."""
    spoken = [reply for reply in replies if reply.text]
    if spoken and (typed or _is_output(spoken[-1].text, output or "")):
        spoken.pop()
    texts = (block.text.strip() for reply in spoken for block in reply.content if isinstance(block, TextBlock))
    return [text for text in texts if text]


def _is_output(reply: str, output: str) -> bool:
    """Whether a reply is the output, which lacks the characters that cannot be shown."""
    return reply == output or _letters(reply) == _letters(output)


def _letters(text: str) -> str:
    letters = "".join(text.split())
    return letters if letters.isprintable() else "".join(filter(str.isprintable, letters))
