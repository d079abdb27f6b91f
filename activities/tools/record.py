"""One attempt at a tool call: who makes it, and what is written down before the deed."""

from dataclasses import dataclass
from typing import Any

from activities.delegation.record import over_budget
from activities.tools.tool import Tool
from domain import events as ev
from domain.sessions.effects import withheld
from domain.sessions.step import ToolRequest, preview
from store.events import to_row

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

    def document(self, **more: Any) -> dict[str, Any]:
        return {
            "tenant": self.request.ref.tenant,
            "session_id": self.request.ref.session_id,
            "node": self.request.node,
            "index": self.request.index,
            "holder": self.holder,
            "attempt": self.number,
            "agent": self.request.agent.name,
            **more,
        }

    def claim(self, tool: Tool | None) -> dict[str, Any]:
        """What is written down before the deed."""
        request = self.request
        lost = ev.ToolReturned(tool=request.name, state="unknown", preview=preview(UNKNOWN))
        return self.document(
            tool=request.name,
            effect=request.effect,
            unknown=UNKNOWN,
            called=[to_row(request.ref, ev.ToolCalled(tool=request.name, args=request.preview))],
            lost=[to_row(request.ref, lost)],
            **over_budget(request.ref, request.name),
            kind=tool.kind if tool else None,
            description=request.preview,
            withheld=tool is not None and withheld(tool.kind, tool.effect),
        )
