"""One attempt at a tool call: who makes it, and what is written before and after it."""

from dataclasses import dataclass
from typing import Any

from activities.delegation.record import over_budget
from activities.runtime.session_run import run_of
from activities.tools.tool import Tool
from domain import events as ev
from domain.events import EventRow
from domain.sessions.effects import withheld
from domain.sessions.step import CallState, ToolRequest, preview
from domain.sessions.tool_writes import ToolClaim, ToolCommit

UNKNOWN = (
    "The outcome of this call is unknown: it was begun, and then the machine that ran it was lost. "
    "It may have happened in full, in part, or not at all. It was not repeated. Check before you do it again."
)


@dataclass(frozen=True)
class Attempt:
    """Who makes this attempt; a newer one fences it off."""

    request: ToolRequest
    holder: str
    number: int

    def claim(self, tool: Tool | None) -> ToolClaim:
        request = self.request
        lost = ev.ToolReturned(tool=request.name, state=CallState.UNKNOWN, preview=preview(UNKNOWN))
        return ToolClaim(
            **self._fields(),
            called=[EventRow.of(request.ref, ev.ToolCalled(tool=request.name, args=request.preview))],
            unknown=UNKNOWN,
            lost=[EventRow.of(request.ref, lost)],
            **over_budget(request.ref, request.name),
            kind=tool.kind if tool else None,
            description=request.preview,
            withheld=tool is not None and withheld(tool.kind, tool.effect),
        )

    def commit(self, state: CallState, text: str, events: list[EventRow], **more: Any) -> ToolCommit:
        rule = self.request.rule
        return ToolCommit(
            **self._fields(),
            state=state,
            text=text,
            events=events,
            denied=self.request.refusal is not None,
            rule=str(rule) if rule else None,
            **more,
        )

    def _fields(self) -> dict[str, Any]:
        request = self.request
        return {
            "tenant": request.ref.tenant,
            "session_id": request.ref.session_id,
            "run": run_of(request.ref),
            "node": request.node,
            "index": request.index,
            "tool": request.name,
            "actor": f"agent {request.agent.name}",
            "effect": request.effect,
            "holder": self.holder,
            "attempt": self.number,
        }
