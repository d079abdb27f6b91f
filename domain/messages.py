"""Messages: the blocks of their content, a request to a model and its answer, the nodes of the message tree, how a path
of nodes becomes the messages that one side's model is sent, and the checkpoint that replaces a path which is too long.
"""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    StringConstraints,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from domain.frozen import Closed, Frozen
from domain.ids import derive_id
from domain.json_object import JsonObject
from domain.pictures import FileBlock
from domain.sessions.session import CallState, StopReason, ToolCallResult, Usage

# The content of messages, in blocks of our own form. Only the vendors' files of activities/model/ translate them.


class TextBlock(Frozen):
    type: Literal["text"] = "text"
    text: str


class ThinkingBlock(Frozen):
    """A thought of a model. Only the same model accepts it back, unchanged and with its proof, in its vendor's form."""

    type: Literal["thinking"] = "thinking"
    text: str = ""
    proof: str = ""
    hidden: bool = False  # the text is not shown: only the proof contains it


class ToolCallBlock(Frozen):
    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    arguments: JsonObject


class QueuedTool(Frozen):
    """A tool call that waits in an inbox."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    arguments: JsonObject = Field(default_factory=dict)


class ToolResultBlock(Frozen):
    type: Literal["tool_result"] = "tool_result"
    call_id: str
    text: str
    failed: bool
    files: list[FileBlock] = Field(default_factory=list)


ReplyBlock = Annotated[TextBlock | ThinkingBlock | ToolCallBlock, Field(discriminator="type")]
UserBlock = Annotated[TextBlock | FileBlock, Field(discriminator="type")]
AnyBlock = TextBlock | FileBlock | ThinkingBlock | ToolCallBlock | ToolResultBlock


def join_text(blocks: Sequence[AnyBlock]) -> str:
    return "\n\n".join(block.text for block in blocks if isinstance(block, TextBlock))


def files_in(blocks: Sequence[AnyBlock]) -> list[FileBlock]:
    """The files of a message, also those of its results of tools."""
    results = [block.files if isinstance(block, ToolResultBlock) else [block] for block in blocks]
    return [one for found in results for one in found if isinstance(one, FileBlock)]


# A request to a model and its answer, independent of the vendor.


@dataclass(frozen=True)
class ModelMessage:
    role: Literal["user", "assistant"]
    content: list[AnyBlock]


@dataclass(frozen=True)
class ToolDefinition:
    """A tool as it is described to the model."""

    name: str
    description: str
    input_schema: JsonObject


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
THINKING_TOKENS: dict[Effort, int] = {
    "none": 0,
    "minimal": 1_024,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
}


class ModelSettings(Closed, strict=True):
    """How the model of a task replies; what is left out is as the agent and the model have it."""

    temperature: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False, description="not with temperature")
    effort: Effort | None = Field(default=None, description="how much it thinks")
    tool_choice: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = Field(
        default="auto", description="auto, none, or for the first reply: required, or the tool that it must call"
    )
    parallel_tool_calls: bool = Field(default=True, description="whether a reply may call several tools")

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.temperature is not None and self.top_p is not None:  # models refuse the two together
            raise PydanticCustomError("excluded", "temperature and top_p exclude each other")
        return self

    @property
    def forces_call(self) -> bool:
        return self.tool_choice not in ("auto", "none")

    def thinking_tokens(self, usual: int) -> int:
        """Models refuse to think with another temperature, or if they must call a tool. What the caller chose counts,
        for all calls of the task, because a model cannot begin to think between a call and its result."""
        if self.temperature is not None or self.top_p is not None or self.forces_call:
            return 0
        return usual if self.effort is None else THINKING_TOKENS[self.effort]

    def for_reply(self, step: int, tools: Collection[str]) -> Self:
        """The settings for one reply: only the first must call a tool, or the task could never end."""
        named = self.forces_call and self.tool_choice != "required"
        if self.forces_call and (step > 1 or (named and self.tool_choice not in tools)):
            return self.model_copy(update={"tool_choice": "auto"})
        return self


@dataclass(frozen=True)
class ModelRequest:
    model: str
    max_tokens: int  # longest answer, without its thoughts
    system: str
    messages: list[ModelMessage]
    notes: list[str] = field(default_factory=list)  # for this call only, so they come after all that can be cached
    tools: list[ToolDefinition] = field(default_factory=list)
    settings: ModelSettings = ModelSettings()
    thinking_tokens: int = 0
    cached: bool = True  # the next request begins with the same messages
    output_schema: JsonObject | None = None  # of the answer, where the vendor can bind it
    files: Mapping[str, bytes] = field(default_factory=dict)  # by id; a file that is not among them is described

    @property
    def output_tokens(self) -> int:
        """The most output tokens that the answer may use, including its thoughts."""
        return self.max_tokens + self.thinking_tokens


@dataclass
class ModelResponse:
    """The result of one request, whole or interrupted."""

    content: list[ReplyBlock] = field(default_factory=list)
    stop_reason: StopReason | None = None
    usage: Usage = field(default_factory=Usage)
    estimated: bool = False  # the endpoint did not count, so the usage is an estimate
    text: str = ""  # so far
    thinking: str = ""
    # only in a handler's reply: whether it ends the session, and the status that it publishes
    ends: Literal["stop", "fail"] | None = None
    status: str | None = None
    immediate: bool = False  # the platform's own calls, at the beginning of a thread

    @property
    def calls(self) -> list[ToolCallBlock]:
        return [block for block in self.content if isinstance(block, ToolCallBlock)]

    def replace_text(self, text: str) -> None:
        """Replace the first text, or insert one before the calls if there is none. Thoughts and calls stay."""
        if text == self.answer():
            return
        texts = [place for place, block in enumerate(self.content) if isinstance(block, TextBlock)]
        calls = [place for place, block in enumerate(self.content) if isinstance(block, ToolCallBlock)]
        first = (texts or calls or [len(self.content)])[0]
        others = [block for place, block in enumerate(self.content) if place > first and place not in texts]
        kept = self.content[first : first + 1] if not texts else []
        self.content = [*self.content[:first], TextBlock(text=text), *kept, *others]

    def answer(self) -> str:
        return "\n\n".join(block.text for block in self.content if isinstance(block, TextBlock))


class NodeKind(StrEnum):
    USER = "user"
    NOTE = "note"
    ASSISTANT = "assistant"
    TOOL_RESULTS = "tool_results"
    SUMMARY = "summary"


USER, NOTE, ASSISTANT, TOOL_RESULTS, SUMMARY = NodeKind
NOTHING_SAID = "(The other side ended its turn without a message.)"
CONVERSATION_BEGINS = "(The conversation begins here.)"
INTERRUPTED = "the call was interrupted before it could report"
_UNANSWERED = "No result: {}. It may or may not have happened."
UNANSWERED = _UNANSWERED.format(INTERRUPTED)


class NodeBody(Frozen):
    kind: ClassVar[NodeKind]


class UserBody(NodeBody):
    kind = USER

    parts: list[UserBlock]
    silent: bool = False  # written by the platform
    visible: bool = True  # false: it is in the context but not shown to people

    @property
    def text(self) -> str:
        return join_text(self.parts)


class NoteBody(NodeBody):
    kind = NOTE

    text: str
    origin: str | None = None  # the agent that sent it; None: the platform


class ReplyBody(NodeBody):
    """A reply of the model. An earlier reply that came with the task is one too; it has no stop reason."""

    kind = ASSISTANT

    content: list[ReplyBlock]
    model: str | None = None
    stop_reason: StopReason | None = None
    turn_text: str | None = None  # the message of the side's stop tool
    ends: Literal["stop", "fail"] | None = None  # a handler ends the session with it
    immediate: bool = False  # the platform's own calls, at the beginning of a thread
    origin: str | None = None  # the node that a rerun repeats

    @property
    def text(self) -> str:
        return join_text(self.content).strip()

    @property
    def thinking(self) -> str:
        return "\n\n".join(block.text for block in self.content if isinstance(block, ThinkingBlock) and block.text)

    @property
    def calls(self) -> list[ToolCallBlock]:
        return [block for block in self.content if isinstance(block, ToolCallBlock)]


class ResultsBody(NodeBody):
    kind = TOOL_RESULTS

    results: list[ToolResultBlock]
    immediate: bool = False  # of the platform's own calls

    @property
    def text(self) -> str:
        return "\n\n".join(result.text for result in self.results)


class SummaryBody(NodeBody):
    kind = SUMMARY

    text: str


Body = UserBody | NoteBody | ReplyBody | ResultsBody | SummaryBody
BODIES: dict[str, type[Body]] = {body.kind: body for body in (UserBody, NoteBody, ReplyBody, ResultsBody, SummaryBody)}


def read_body(kind: str, stored: str) -> Body:
    return BODIES[kind].model_validate_json(stored)


class Node(Frozen):
    """One immutable message. Its body is parsed once, when the node is read; the store holds it as JSON."""

    id: str
    parent: str | None
    session_id: str
    kind: NodeKind
    author: str = ""
    line: str = "main"
    side: str = "a"  # the side whose turn it belongs to
    step: int
    body: Body

    @field_validator("body", mode="before")
    @classmethod
    def _read_body(cls, body: Any, info: ValidationInfo) -> Any:
        return read_body(info.data["kind"], body) if isinstance(body, str) else body

    @field_serializer("body")
    def _dump_body(self, body: Body) -> str:
        return body.model_dump_json()


def text_of(node: Node) -> str:
    """The readable text of a node."""
    return node.body.text


def calls_of(node: Node) -> list[ToolCallBlock]:
    """The tool calls an assistant node asks for, in order."""
    return node.body.calls if isinstance(node.body, ReplyBody) else []


def answer_node(node: Node, results: list[ToolCallResult], because: str = INTERRUPTED) -> ResultsBody:
    """The results that answer every call of an assistant node. `because`: why there is none for the others."""
    immediate = isinstance(node.body, ReplyBody) and node.body.immediate
    return answer_calls(calls_of(node), results, because).model_copy(update={"immediate": immediate})


def answer_calls(calls: list[ToolCallBlock], results: list[ToolCallResult], because: str = INTERRUPTED) -> ResultsBody:
    """The same for a list of calls, with a synthetic result for a call whose result is unknown."""
    known = {result.index: result for result in results if result.state is not CallState.STARTED}
    answers = []
    for index, call in enumerate(calls):
        result = known.get(index)
        text = result.text if result is not None else _UNANSWERED.format(because)
        failed = result is None or result.state is not CallState.OK
        files = result.files if result is not None else []
        answers.append(ToolResultBlock(call_id=call.id, text=text, failed=failed, files=files))
    return ResultsBody(results=answers)


def repair_gaps(nodes: list[Node]) -> list[Node]:
    """Repair a path that lacks some nodes: drop results without their calls, and add results to calls without any."""
    kept: list[Node] = []
    for node in nodes:
        open_calls = kept and calls_of(kept[-1])
        if isinstance(node.body, ResultsBody) and not open_calls:
            continue
        if open_calls and not isinstance(node.body, ResultsBody):
            last = kept[-1]
            given = {"id": derive_id(last.id, "gap"), "parent": last.id, "kind": TOOL_RESULTS, "author": ""}
            kept.append(last.model_copy(update={**given, "body": answer_node(last, [])}))
        kept.append(node)
    return kept


def turn_text_of(node: Node) -> str:
    """The text that an assistant node says to the other side: its stop tool's message, else its text."""
    said = node.body.turn_text if isinstance(node.body, ReplyBody) else None
    return (said or text_of(node)).strip()


def _show_node(node: Node, model: str, side: str) -> tuple[Literal["user", "assistant"], list[AnyBlock]]:
    body = node.body
    if node.side != side and not isinstance(body, UserBody):
        # The other side is the user here: its text is shown, but not its tool calls, results and notes.
        text = turn_text_of(node) if isinstance(body, ReplyBody) else ""
        return "user", [TextBlock(text=text)] if text else []
    if isinstance(body, ReplyBody | ResultsBody) and body.immediate:
        # calls of the platform itself: the model is shown their results as text
        results = body.results if isinstance(body, ResultsBody) else []
        texts: list[AnyBlock] = [TextBlock(text=result.text) for result in results if result.text]
        return "user", [*texts, *files_in(results)]
    match body:
        case ReplyBody():
            foreign = body.model != model
            return "assistant", [block for block in body.content if not (foreign and isinstance(block, ThinkingBlock))]
        case ResultsBody():
            return "user", [*body.results]
        case UserBody():
            return "user", [*body.parts]
        case SummaryBody():
            return "user", [TextBlock(text=f"<checkpoint>\n{body.text}\n</checkpoint>")]
        case NoteBody():
            origin = f' origin="{body.origin}"' if body.origin is not None else ""
            return "user", [TextBlock(text=f"<system_message{origin}>\n{body.text}\n</system_message>")]


def since_checkpoint(nodes: list[Node], side: str = "a") -> list[Node]:
    """The messages that a side's model is shown: its newest checkpoint and all that follows. Each side has its own
    checkpoints."""
    for place in range(len(nodes) - 1, -1, -1):
        if nodes[place].kind == SUMMARY and nodes[place].side == side:
            return nodes[place:]
    return nodes


def select_shown(nodes: list[Node], side: str) -> list[Node]:
    """The messages that a side may see: all of its own, and of the other side's messages only their texts."""
    shown = since_checkpoint(nodes, side)
    return [node for node in shown if node.side == side or isinstance(node.body, UserBody | ReplyBody)]


def hide_nodes(nodes: list[Node], hidden: Collection[str]) -> list[Node]:
    """The messages without the hidden ones. A reply and the results of its calls are kept or hidden together. The
    newest message is kept, since the model needs something to answer, and so is a checkpoint, which replaces all before
    it."""
    gone = {node.id for node in nodes[:-1] if node.id in hidden and node.kind != SUMMARY}
    pairs = [
        (before.id, node.id)
        for before, node in itertools.pairwise(nodes)
        if isinstance(node.body, ResultsBody) and isinstance(before.body, ReplyBody)
    ]
    for reply, results in pairs:
        if results == nodes[-1].id:
            gone.discard(reply)
        elif gone & {reply, results}:
            gone |= {reply, results}
    return [node for node in nodes if node.id not in gone]


def render_messages(nodes: list[Node], model: str, side: str = "a") -> list[ModelMessage]:
    """The messages of a request as one side sees them: itself as assistant, the other side and people as user.

    Neighbours of one role are merged, since models demand alternation. They also demand that a user begins; and where
    there are two sides, the model must be given something to answer even if the other side said nothing.
    """
    messages: list[ModelMessage] = []
    for node in since_checkpoint(nodes, side):
        role, blocks = _show_node(node, model, side)
        if not blocks:
            continue
        if messages and messages[-1].role == role:
            messages[-1].content.extend(blocks)
        else:
            messages.append(ModelMessage(role, blocks))
    if messages and messages[0].role == "assistant":
        messages.insert(0, ModelMessage("user", [TextBlock(text=CONVERSATION_BEGINS)]))
    if messages and messages[-1].role == "assistant" and any(node.side != side for node in nodes):
        messages.append(ModelMessage("user", [TextBlock(text=NOTHING_SAID)]))
    return messages


def shorten_results(nodes: list[Node], limit: int) -> list[Node]:
    """The same path with long tool results cut, for a checkpoint whose whole context would not fit."""
    return [
        node.model_copy(update={"body": ResultsBody(results=[_cut(result, limit) for result in node.body.results])})
        if isinstance(node.body, ResultsBody)
        else node
        for node in nodes
    ]


def _cut(result: ToolResultBlock, limit: int) -> ToolResultBlock:
    left_out = len(result.text) - limit
    if left_out <= 0:
        return result
    return result.model_copy(update={"text": f"{result.text[:limit]}\n[… {left_out} characters left out]"})


# The fixed form of a checkpoint, which replaces a context that has grown too long. A model fills it in. Headings that
# it leaves out are added as empty, so that every reader knows that nothing was noted there.


CHECKPOINT_HEADINGS = ("Goal", "Constraints", "Done", "Open", "Decisions", "Next")
CHECKPOINT_CHILDREN = "Running children"
NOTHING_NOTED = "(nothing noted)"

CHECKPOINT_REQUEST = f"""\
The conversation no longer fits and will be replaced by your next reply. Write a checkpoint from which you can \
continue without it, under these headings, each on its own line as `## Heading`: {"; ".join(CHECKPOINT_HEADINGS)}. \
Open is what is in progress or blocked. Keep exact names, paths, ids, figures and quotations that are still needed."""


def fill_checkpoint(text: str, children: Sequence[str]) -> str:
    """The checkpoint with all of its headings. Running children are always listed, whatever the model wrote about
    them."""
    missing = [heading for heading in CHECKPOINT_HEADINGS if not _has(text, heading)]
    parts = [text.strip(), *(f"## {heading}\n{NOTHING_NOTED}" for heading in missing)]
    parts.append(f"## {CHECKPOINT_CHILDREN}\n" + ("\n".join(f"- {child}" for child in children) or "(none)"))
    return "\n\n".join(part for part in parts if part)


def _has(text: str, heading: str) -> bool:
    return re.search(rf"^\W*{heading}\b", text, re.MULTILINE | re.IGNORECASE) is not None
