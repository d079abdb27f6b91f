"""The fold: the event log of a session as responses, one for each part, and the events of their streams.

It reads no clock and does no I/O. The same log gives the same events in every replay and every process, so the position
of an event in its part is a cursor that is valid everywhere.
"""

import json
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter

from api.faces.responses.objects import (
    ApprovalRequest,
    FunctionCall,
    IncompleteDetails,
    InputDetails,
    Item,
    ItemStatus,
    McpCall,
    OutputMessage,
    OutputText,
    Reasoning,
    ResponseError,
    ResponseState,
    ResponseStatus,
    ResponseUsage,
    StreamEvent,
    SummaryText,
    ToolError,
)
from domain.agents.definition import PLANNING, ExternalTool
from domain.conversations.subagents import DelegationTool
from domain.errors import NotFound
from domain.events import ENDED, Ended, Recorded
from domain.ids import ID_PATTERN
from domain.json_object import JsonObject
from domain.sessions.input_request import APPROVALS, InputRequest, RequestKind
from domain.sessions.session import Reason, Status, Usage

_ENDS = {one.type: one for one in ENDED.values()}
_USAGE = TypeAdapter(Usage)
[PLAN] = PLANNING  # the tool whose plans people approve; their request names no tool


@dataclass(frozen=True)
class SessionFacts:
    """The facts about a session that are not in its log; none of them change."""

    session_id: str
    callers_tools: frozenset[str] = frozenset()
    approvals_by_caller: bool = False

    @classmethod
    def of(cls, session_id: str, tools: Iterable[ExternalTool], first_request: str | None) -> "SessionFacts":
        """`first_request`: the stored request of part 1; None for a task of another face."""
        options = json.loads(first_request or "{}").get("errand") or {}
        by_caller = options.get("approvals") == "caller"
        return cls(session_id, frozenset(tool.name for tool in tools), by_caller)


@dataclass
class ResponsePart:
    """One response, as far as the log has it."""

    number: int
    state: ResponseState
    before: Usage  # the session's usage when the part began
    closed: bool = False
    ended: bool = False  # closed because the session has ended, and not because it waits for its caller
    indexes: int = 0  # output items begun so far
    output: dict[int, Item] = field(default_factory=dict)  # finished items by index
    events: list[StreamEvent] = field(default_factory=list)  # since they were last taken


class Fold:
    def __init__(self, facts: SessionFacts) -> None:
        self._facts = facts
        self.parts: list[ResponsePart] = []
        self._texts = Texts(facts.session_id, self._next_index, self._emit)
        self._usage = Usage()
        self._thinking: set[int] = set()  # steps without a reply yet
        self._pending = 0  # tool calls of the present replies without a result
        self._open: dict[str, RequestKind] = {}  # input requests that wait
        self._running: defaultdict[str, deque[tuple[int, McpCall] | None]] = defaultdict(deque)  # by tool, oldest first
        self._calls = 0

    def feed(self, event: Recorded, requests: Mapping[str, InputRequest]) -> None:
        """Add the next event; `requests` has the input requests that the caller answers."""
        if not self.parts:
            self._begin(event)
        elif self.parts[-1].closed:
            # late events of a closed part belong to no response, but the counters must still see them
            if not self._resumes(event):
                self._count(event)
                self._count_unseen(event)
                return
            self._begin(event)
        if event.type in _ENDS:
            self._end(_ENDS[event.type].model_validate(event.data), event)
            return
        self._show(event, requests)
        self._count(event)
        if self._waits_for_caller():
            self._flush_texts()
            self._close(event, "response.completed", status="completed")

    @property
    def part(self) -> ResponsePart:
        return self.parts[-1]

    def _begin(self, event: Recorded) -> None:
        first = not self.parts
        status: ResponseStatus = "queued" if first and event.type == "task_submitted" else "in_progress"
        state = ResponseState(status=status, created_at=round(event.at.timestamp(), 3))
        self.parts.append(ResponsePart(len(self.parts) + 1, state, self._usage))
        for name in ("created", status):
            self._emit(StreamEvent(type=f"response.{name}", state=state))

    def _resumes(self, event: Recorded) -> bool:
        """Whether another part follows a closed one: its caller has answered everything, or it is stopped."""
        if event.type in ("input_received", "input_expired"):
            # the last answer only: a part that began with the first of several would close again at once
            return not (self._open.keys() - {event.data["request_id"]})
        return event.type == "cancel_requested" or event.type in _ENDS

    def _count(self, event: Recorded) -> None:
        """Track the session's activity, even while no part is open."""
        data = event.data
        match event.type:
            case "step_started":
                self._thinking.add(data["step"])
                if not self._running[DelegationTool.DELEGATE]:
                    self._pending = 0  # a step begins once all calls of the previous one have ended
            case "usage_updated":
                self._thinking.discard(data["step"])
                self._usage = _USAGE.validate_python(data["total"])
                self._pending += data.get("calls", 0)
            case "tool_returned":
                self._pending = max(0, self._pending - 1)
            case "input_required":
                self._open[data["request_id"]] = RequestKind(data["kind"])
            case "input_received" | "input_expired":
                self._open.pop(data["request_id"], None)

    def _count_unseen(self, event: Recorded) -> None:
        """Pair calls that begin or end while no part is open."""
        tool = str(event.data.get("tool", ""))
        if event.type == "tool_called" and tool not in self._facts.callers_tools:
            self._running[tool].append(None)
        elif event.type == "tool_returned" and self._running[tool]:
            self._running[tool].popleft()

    def _waits_for_caller(self) -> bool:
        kinds = list(self._open.values())
        if not kinds or self._thinking or not all(map(self._is_callers, kinds)):
            return False
        calls = [kind for kind in kinds if kind is not RequestKind.PLAN_APPROVAL]
        # Only when every other call of the reply has its result: the caller gets all function calls at once.
        return self._pending - len(self._running[DelegationTool.DELEGATE]) == len(calls)

    def _is_callers(self, kind: RequestKind) -> bool:
        return kind is RequestKind.EXTERNAL_RESULT or (self._facts.approvals_by_caller and kind in APPROVALS)

    def _show(self, event: Recorded, requests: Mapping[str, InputRequest]) -> None:
        data = event.data
        match event.type:
            case "task_started" | "step_started":
                self._flush_texts()
                if self.part.state.status == "queued":
                    self._change(status="in_progress")
                    self._emit(StreamEvent(type="response.in_progress", state=self.part.state))
            case "thinking_delta" | "message_delta":
                self._texts.delta(KINDS[event.type], data["step"], data["text"])
            case "model_retry" | "model_switched" | "attempt_reset":  # a dead worker reports no retry
                self._texts.reset(data["step"])
            case "thinking":
                self._add(*self._texts.thought(data["step"], data["text"]))
            case "message":
                self._texts.said(data["step"], data["text"], data.get("interrupted", False))
            case "usage_updated" if data.get("calls"):
                self._flush_texts()
            case "tool_called" if data["tool"] not in self._facts.callers_tools:
                self._call(data["tool"], data["args"])
            case "tool_returned" if data["tool"] not in self._facts.callers_tools:
                self._flush_texts()
                self._note_result(data["tool"], data["state"], data["preview"])
            case "input_required":
                self._flush_texts()
                if (request := requests.get(data["request_id"])) is not None and self._is_callers(request.kind):
                    self._ask(request)
            case "cancel_requested":
                self._change(status="cancelled")

    def _call(self, tool: str, summary: str) -> None:
        self._flush_texts()
        self._calls += 1
        arguments = json.dumps({"summary": summary}, ensure_ascii=False)
        item = McpCall(
            id=f"mcp_{self._facts.session_id}_{self._calls}", name=tool, arguments=arguments, status="in_progress"
        )
        index = self._next_index()
        self._running[tool].append((index, item))
        self._emit(StreamEvent(type="response.output_item.added", item=item, output_index=index))
        self._emit(StreamEvent(type="response.mcp_call.in_progress", item_id=item.id, output_index=index))
        done = "response.mcp_call_arguments.done"
        self._emit(StreamEvent(type=done, item_id=item.id, output_index=index, arguments=arguments))

    def _note_result(self, tool: str, state: str, preview: str) -> None:
        running = self._running[tool].popleft() if self._running[tool] else None
        if running is None:  # it was called while no part was open
            return
        index, item = running
        changes: JsonObject = {"status": "completed", "output": preview}
        if state != "ok":
            error = ToolError(content=[{"type": "text", "text": preview}])
            changes = {"status": "failed", "error": error}
        item = item.model_copy(update=changes)
        ended = f"response.mcp_call.{item.status}"
        self._emit(StreamEvent(type=ended, item_id=item.id, output_index=index))
        self._done(index, item)

    def _ask(self, request: InputRequest) -> None:
        index, details = self._next_index(), request.details
        if request.kind is RequestKind.EXTERNAL_RESULT:
            arguments = json.dumps(details["arguments"], ensure_ascii=False)
            begun = FunctionCall(
                id=f"fc_{request.id}",
                call_id=f"call_{request.id}",
                name=details["tool"],
                arguments="",
                status="in_progress",
            )
            self._emit(StreamEvent(type="response.output_item.added", item=begun, output_index=index))
            where: JsonObject = {"item_id": begun.id, "output_index": index}
            self._emit(StreamEvent(type="response.function_call_arguments.delta", delta=arguments, **where))
            self._emit(StreamEvent(type="response.function_call_arguments.done", arguments=arguments, **where))
            self._done(index, begun.model_copy(update={"arguments": arguments, "status": "completed"}))
            return
        name, asked = details.get("tool", PLAN), details.get("arguments", {"plan": details.get("plan", [])})
        item = ApprovalRequest(id=f"mcpr_{request.id}", name=name, arguments=json.dumps(asked, ensure_ascii=False))
        self._emit(StreamEvent(type="response.output_item.added", item=item, output_index=index))
        self._done(index, item)

    def _flush_texts(self, output: str | None = None) -> None:
        for index, item in self._texts.flush(output):
            self._add(index, item)

    def _end(self, ended: Ended, event: Recorded) -> None:
        self._usage = ended.usage
        self._flush_texts(ended.output if ended.status is Status.COMPLETED else None)
        # every item that was added must be closed before the last event, which clients of the stream rely on
        self._texts.abandon()
        for running in [one for line in self._running.values() for one in line if one is not None]:
            self._done(running[0], running[1].model_copy(update={"status": "incomplete"}))
        self.part.ended = True
        kind, changes = ending(ended)
        self._close(event, kind, **changes)

    def _close(self, event: Recorded, kind: str, **changes: object) -> None:
        used = usage_of(self._usage.minus(self.part.before))
        self._change(**changes, usage=used, completed_at=round(event.at.timestamp(), 3))
        self.part.closed = True
        self._emit(StreamEvent(type=kind, state=self.part.state))
        for tool, line in self._running.items():  # calls that still run are not shown
            self._running[tool] = deque([None] * len(line))

    def _add(self, index: int, item: Item) -> None:
        self.part.output[index] = item
        self._change(output=[self.part.output[place] for place in sorted(self.part.output)])

    def _done(self, index: int, item: Item) -> None:
        self._emit(StreamEvent(type="response.output_item.done", item=item, output_index=index))
        self._add(index, item)

    def _change(self, **changes: object) -> None:
        self.part.state = self.part.state.model_copy(update=changes)

    def _next_index(self) -> int:
        self.part.indexes += 1
        return self.part.indexes - 1

    def _emit(self, event: StreamEvent) -> None:
        self.part.events.append(event)


# Messages and reasoning of the fold: their first delta opens them, and they are closed once their kind is known.


def _message(id: str, texts: list[str], status: ItemStatus, final: bool) -> OutputMessage:
    # a message is a commentary until its task is known to be done
    phase: Literal["commentary", "final_answer"] = "final_answer" if final else "commentary"
    return OutputMessage(id=id, content=[OutputText(text=text) for text in texts], status=status, phase=phase)


def _reasoning(id: str, texts: list[str], status: ItemStatus, final: bool) -> Reasoning:
    return Reasoning(id=id, summary=[SummaryText(text=text) for text in texts], status=status)


@dataclass(frozen=True, eq=False)
class Kind:
    """What the two kinds of texts are called in the protocol."""

    prefix: str  # of their ids
    place: str
    text: str
    part: str
    content: type[OutputText] | type[SummaryText]
    extra: JsonObject  # fields of the events with their text
    item: Callable[[str, list[str], ItemStatus, bool], OutputMessage | Reasoning]


MESSAGE = Kind("msg", "content_index", "output_text", "content_part", OutputText, {"logprobs": []}, _message)
THINKING = Kind("rs", "summary_index", "reasoning_summary_text", "reasoning_summary_part", SummaryText, {}, _reasoning)
KINDS = {"message_delta": MESSAGE, "thinking_delta": THINKING}
Closed = tuple[int, OutputMessage | Reasoning]  # with its output index


@dataclass
class OpenText:
    kind: Kind
    id: str
    index: int
    text: str = ""

    def text_event(self, moment: str, **text: str) -> StreamEvent:
        return self._event(f"{self.kind.text}.{moment}", **text, **self.kind.extra)

    def part_event(self, moment: str, text: str) -> StreamEvent:
        return self._event(f"{self.kind.part}.{moment}", part=self.kind.content(text=text))

    def _event(self, name: str, **fields: Any) -> StreamEvent:
        where: JsonObject = {"item_id": self.id, "output_index": self.index, self.kind.place: 0}
        return StreamEvent(type=f"response.{name}", **where, **fields)


class Texts:
    """Open items by kind and step, because lines of one session may write at the same time."""

    def __init__(self, session_id: str, next_index: Callable[[], int], emit: Callable[[StreamEvent], None]) -> None:
        self._session_id = session_id
        self._next_index = next_index
        self._emit = emit
        self._open: dict[tuple[Kind, int], OpenText] = {}
        self._said: dict[int, tuple[str, ItemStatus]] = {}  # whole messages whose phase is not known yet, by step
        self._resets: Counter[int] = Counter()

    def delta(self, kind: Kind, step: int, text: str) -> None:
        self._append(self._open_text(kind, step), text)

    def reset(self, step: int) -> None:
        """Close the items of a void attempt; they do not belong to the response."""
        self._said.pop(step, None)
        for kind in (THINKING, MESSAGE):
            if (opened := self._open.pop((kind, step), None)) is not None:
                self._done(opened, opened.text, "incomplete")
        self._resets[step] += 1

    def thought(self, step: int, text: str) -> Closed:
        return self._close(THINKING, step, text)

    def said(self, step: int, text: str, interrupted: bool) -> None:
        self._said[step] = (text, "incomplete" if interrupted else "completed")

    def flush(self, output: str | None) -> list[Closed]:
        """Close the complete messages. With `output` the task is done: the last message is the answer, in that form."""
        waiting, self._said = self._said, {}
        last = max(waiting, default=0)
        if output is not None:  # without a message a tool call ended the task, with the result in its arguments
            waiting[last] = (output, waiting[last][1] if waiting else "completed")
        return [
            self._close(MESSAGE, step, *said, final=output is not None and step == last)
            for step, said in waiting.items()
        ]

    def abandon(self) -> None:
        """Close items that the session's end interrupted."""
        for opened in self._open.values():
            self._done(opened, opened.text, "incomplete")
        self._open.clear()

    def _open_text(self, kind: Kind, step: int) -> OpenText:
        if (known := self._open.get((kind, step))) is not None:
            return known
        # clients find items by id, so that a new attempt must not reuse the id of the void one
        again = f"_{self._resets[step]}" if self._resets[step] else ""
        opened = OpenText(kind, f"{kind.prefix}_{self._session_id}_{step}{again}", self._next_index())
        self._open[kind, step] = opened
        item = kind.item(opened.id, [], "in_progress", False)
        self._emit(StreamEvent(type="response.output_item.added", item=item, output_index=opened.index))
        self._emit(opened.part_event("added", ""))
        return opened

    def _append(self, opened: OpenText, text: str) -> None:
        opened.text += text
        self._emit(opened.text_event("delta", delta=text))

    def _close(
        self, kind: Kind, step: int, text: str, status: ItemStatus = "completed", *, final: bool = False
    ) -> Closed:
        opened = self._open_text(kind, step)
        # a message that came whole, without deltas: clients build the text from deltas alone
        if not opened.text:
            self._append(opened, text)
        del self._open[kind, step]
        return opened.index, self._done(opened, text, status, final=final)

    def _done(
        self, opened: OpenText, text: str, status: ItemStatus, *, final: bool = False
    ) -> OutputMessage | Reasoning:
        self._emit(opened.text_event("done", text=text))
        self._emit(opened.part_event("done", text))
        item = opened.kind.item(opened.id, [text], status, final)
        self._emit(StreamEvent(type="response.output_item.done", item=item, output_index=opened.index))
        return item


# Maps the end of a session and its usage to those of a response.


_TOKENS = frozenset({Reason.TOKEN_BUDGET, Reason.COST_BUDGET, Reason.TREE_BUDGET})
_STEPS = frozenset({Reason.STEP_LIMIT, Reason.TURN_LIMIT, Reason.TOOL_LIMIT})


def ending(ended: Ended) -> tuple[str, JsonObject]:
    """The type of the last event, and the fields of the response that it changes."""
    if ended.status is Status.COMPLETED:
        return "response.completed", {"status": "completed"}
    if ended.status is Status.CANCELLED:
        return "response.incomplete", {"status": "cancelled"}  # the protocol has no event for this
    if ended.reason in _TOKENS | _STEPS:
        reason = "max_output_tokens" if ended.reason in _TOKENS else "max_messages"
        details = IncompleteDetails.model_validate({"reason": reason})
        return "response.incomplete", {"status": "incomplete", "incomplete_details": details}
    refused = ended.reason in (Reason.POLICY_DENIED, Reason.NEEDS_INPUT)
    message = f"{ended.reason}: {ended.error}" if ended.error else f"The task ended early: {ended.reason}."
    error = ResponseError(code="invalid_prompt" if refused else "server_error", message=message)
    return "response.failed", {"status": "failed", "error": error}


def usage_of(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        # OpenAI counts cached tokens as input, Anthropic does not
        input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        input_tokens_details=InputDetails(
            cached_tokens=usage.cache_read_tokens, cache_write_tokens=usage.cache_write_tokens
        ),
        output_tokens=usage.output_tokens,
        total_tokens=usage.tokens,
    )


# Public ids of the Responses face. All derive from ids of sessions, conversations and input requests.


_ID = ID_PATTERN.strip("^$")
_RESPONSE = re.compile(rf"resp_({_ID})(?:_([1-9][0-9]{{0,5}}))?")


class ResponseId(NamedTuple):
    """A response is one part of a session: it lasts until the session ends or waits for its caller alone."""

    session_id: str
    part: int = 1

    def __str__(self) -> str:
        return f"resp_{self.session_id}" + (f"_{self.part}" if self.part > 1 else "")

    @classmethod
    def parse(cls, text: str) -> "ResponseId":
        found = _RESPONSE.fullmatch(text)
        if found is None or found[2] == "1":  # the first part has only the short id
            raise NotFound("There is no such response.")
        return cls(found[1], int(found[2] or 1))


def without_prefix(prefix: str, text: str) -> str | None:
    """The id in `prefix_<id>`; None if the text is something else."""
    found = re.fullmatch(rf"{prefix}_({_ID})", text)
    return found[1] if found else None
