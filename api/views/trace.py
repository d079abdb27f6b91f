"""Traces: built from a session's stored events, model responses and tool calls, without a worker."""

import json
from collections import defaultdict
from datetime import datetime
from typing import Any

from errand import models

from domain.events import Recorded
from domain.ids import derive_id
from domain.messages import ToolCallBlock, calls_of
from domain.redaction import shorten_and_redact
from domain.sessions.session import Usage
from store import events, sessions, tool_calls, traces
from store.database import Pool
from store.sessions import SessionRow

MOST_SESSIONS = 200
MOST_EVENTS = 20_000
NOT_RUN = "not_run"
STARTED = "started"
MARKS: dict[str, str] = {  # an event that is shown as a mark -> the field with its text
    "replanning": "reason",
    "progress": "message",
    "model_retry": "reason",
    "model_switched": "to_model",
    "context_compacted": "summary",
    "input_required": "question",
    "input_reminder": "question",
    "input_escalated": "to",
    "input_received": "by",
    "input_expired": "kind",
    "message_received": "preview",
    "handed_over": "to_agent",
    "artifact_saved": "name",
    "mcp_tool_changed": "tool",
    "workspace_not_kept": "count",
    "cancel_requested": "reason",
    "budget_low": "budget",
    "budget_raised": "budget",
    "subagent_budget_exceeded": "reason",
    "anomaly": "kind",
    "acceptance_checked": "passed",
}


class Tracer:
    """Builds one trace, with the traces of the subagents inside it, up to MOST_SESSIONS."""

    def __init__(self, pool: Pool, tenant: str, chars: int) -> None:
        self._pool = pool
        self._tenant = tenant
        self._chars = chars
        self._room = MOST_SESSIONS

    async def trace(self, session: SessionRow) -> models.Trace:
        [session] = await tool_calls.count_calls(self._pool, self._tenant, [session])
        log = await events.without_deltas(self._pool, self._tenant, session.id, MOST_EVENTS + 1)
        replies = await traces.get_replies(self._pool, self._tenant, session.id, MOST_EVENTS)
        calls = await traces.get_calls(self._pool, self._tenant, session.id, MOST_EVENTS)
        children, whole = await self._children(session)
        steps = self._steps(log, session.created_at)
        running = None if session.status.terminal else max(steps, default=None)
        two_sides = session.sides is not None and session.sides.dual
        for reply in replies:
            if reply.step not in steps:
                continue
            step = steps[reply.step]
            step.side, step.speaker = reply.side, reply.author if two_sides else None
            for index, block in enumerate(calls_of(reply)):
                span = self._tool(step, index, block, calls.get((reply.id, index)), running == reply.step)
                if (child := children.pop(derive_id(reply.id, "child", index), None)) is not None:
                    span.sessions.append(child)
                step.tools.append(span)
            # a further model call of a step, such as the final summary, begins when the tools before it have ended
            for further in step.models[1:]:
                ends = [tool.ended_at for tool in step.tools if tool.ended_at and tool.ended_at <= further.ended_at]
                further.started_at = max([further.started_at, *ends])
        shared = {name: getattr(session, name) for name in models.Trace.model_fields if name in SessionRow.model_fields}
        return models.Trace(
            **shared,
            session_id=session.id,
            name=session.subagent_name,
            rerun_of=session.rerun,
            steps=_nest_lines(steps, {reply.step: reply.line for reply in replies}),
            marks=self._marks(log),
            sessions=list(children.values()),
            complete=whole and len(log) <= MOST_EVENTS and all(child.complete for child in children.values()),
        )

    async def _children(self, session: SessionRow) -> tuple[dict[str, models.Trace], bool]:
        found: dict[str, models.Trace] = {}
        ids = await traces.find_spawned(self._pool, self._tenant, session.id, MOST_SESSIONS + 1)
        for child_id in ids:
            if self._room <= 0:
                return found, False
            # one count for the whole tree, because each subagent may have as many again
            self._room -= 1
            child = await sessions.get(self._pool, self._tenant, child_id)
            assert child is not None
            found[child_id] = await self.trace(child)
        return found, True

    def _steps(self, log: list[Recorded], began: datetime) -> dict[int, models.StepTrace]:
        """The steps with their model calls: each call ends with its usage event."""
        steps: dict[int, models.StepTrace] = {}
        said: dict[int, dict[str, Any]] = defaultdict(dict)
        for event in log:
            data = event.data
            if "step" not in data:
                continue
            number = data["step"]
            step = steps.setdefault(number, models.StepTrace(step=number, started_at=event.at))
            if event.type in ("thinking", "message", "context_compacted"):
                kind = "thinking" if event.type == "thinking" else "text"
                said[number][kind] = self._short(data.get("text") or data.get("summary") or "")
            elif event.type == "attempt_reset":
                said[number]["attempts"] = data["attempt"]
            elif event.type == "usage_updated":
                # no event marks the beginning of a further call of the same step
                begun = step.models[-1].ended_at if step.models else step.started_at
                step.models.append(
                    models.ModelSpan(
                        model=data["model"],
                        started_at=begun,
                        ended_at=event.at,
                        usage=models.Usage.model_validate(Usage(**data["call"])),
                        **said.pop(number, {}),
                    )
                )
        return steps

    def _tool(
        self, step: models.StepTrace, index: int, block: ToolCallBlock, call: models.ToolSpan | None, running: bool
    ) -> models.ToolSpan:
        """The span of a call. A call without a row was never made, or is a read in progress, which is recorded at its
        end."""
        arguments = self._short(json.dumps(block.arguments, ensure_ascii=False))
        if call is not None:
            return call.model_copy(update={"arguments": arguments, "result": self._short(call.result)})
        asked_at = step.models[-1].ended_at if step.models else step.started_at
        return models.ToolSpan(
            index=index,
            tool=block.name,
            arguments=arguments,
            effect="",
            state=STARTED if running else NOT_RUN,
            result="",
            started_at=asked_at,
            ended_at=None if running else asked_at,
        )

    def _marks(self, log: list[Recorded]) -> list[models.Mark]:
        over = {
            event.data["request_id"]: event.at for event in log if event.type in ("input_received", "input_expired")
        }
        return [mark for event in log if (mark := self._mark(event, over))]

    def _mark(self, event: Recorded, over: dict[str, datetime]) -> models.Mark | None:
        if event.type == "plan_updated":
            plan = "; ".join(f"{step['title']} ({step['status']})" for step in event.data["steps"])
            return models.Mark(at=event.at, type=event.type, text=self._short(plan), plan=event.data["steps"])
        if event.type not in MARKS:
            return None
        until = event.data.get("next_at") if event.type == "model_retry" else None
        if event.type == "input_required":
            until = over.get(event.data["request_id"])
        text = self._short(str(event.data.get(MARKS[event.type], "")))
        return models.Mark(at=event.at, type=event.type, text=text, until=until)

    def _short(self, text: str) -> str:
        return shorten_and_redact(text, self._chars)


def _nest_lines(steps: dict[int, models.StepTrace], lines: dict[int, str]) -> list[models.StepTrace]:
    """The steps of an inline subagent, `main/3.0`, are shown inside the call that started it: call 0 of step 3."""
    top: list[models.StepTrace] = []
    for number, step in steps.items():
        above, _, place = lines.get(number, "main").rpartition("/")
        if not above:
            top.append(step)
            continue
        outer, _, index = place.partition(".")
        calls = steps[int(outer)].tools if int(outer) in steps else []
        holder = next((call for call in calls if call.index == int(index)), None)
        (holder.steps if holder else top).append(step)
    return top
