"""The fold: the event log of a session as responses, one for each part, and the events of their streams.

It reads no clock and does no I/O. The same log gives the same events in every replay and every process, so the position
of an event in its part is a cursor that is valid everywhere.
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from api.faces.responses.objects import (
    ApprovalRequest,
    FunctionCall,
    Item,
    McpCall,
    ResponseState,
    ResponseStatus,
    StreamEvent,
    ToolError,
)
from api.faces.responses.outcome import ending, usage_of
from api.faces.responses.texts import Texts
from domain.agents.own_tools import PLANNING
from domain.conversations.delegation import DelegationTool
from domain.events import ENDED, Ended, Recorded
from domain.external_tool import ExternalTool
from domain.json_object import JsonObject
from domain.sessions.input_request import APPROVALS, InputRequest, RequestKind
from domain.sessions.session import Status, Usage

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
        self._texts = Texts(facts.session_id)
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
                self._texts.delta(event.type, data["step"], data["text"], self._next_index, self._emit)
            case "model_retry" | "model_switched" | "attempt_reset":  # a dead worker reports no retry
                self._texts.reset(data["step"], self._emit)
            case "thinking":
                self._add(*self._texts.thought(data["step"], data["text"], self._next_index, self._emit))
            case "message":
                self._texts.said(data["step"], data["text"], data.get("interrupted", False))
            case "usage_updated" if data.get("calls"):
                self._flush_texts()
            case "tool_called" if data["tool"] not in self._facts.callers_tools:
                self._call(data["tool"], data["args"])
            case "tool_returned" if data["tool"] not in self._facts.callers_tools:
                self._flush_texts()
                self._returned(data["tool"], data["state"], data["preview"])
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

    def _returned(self, tool: str, state: str, preview: str) -> None:
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
        for index, item in self._texts.flush(output, self._next_index, self._emit):
            self._add(index, item)

    def _end(self, ended: Ended, event: Recorded) -> None:
        self._usage = ended.usage
        self._flush_texts(ended.output if ended.status is Status.COMPLETED else None)
        # every item that was added must be closed before the last event, which clients of the stream rely on
        self._texts.abandon(self._emit)
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
