"""Two traces side by side: where they part, what a recorded rerun stopped, and what each cost."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from domain.sessions.trace import StepTrace, ToolSpan, Trace


@dataclass(frozen=True)
class Parting:
    """The first thing that is not the same; a step that only one of them has is None for the other."""

    what: str  # text | tool_call | tool_result | length | ending
    step_a: int | None
    step_b: int | None
    a: str
    b: str
    tool: str | None = None


@dataclass(frozen=True)
class StoppedCall:
    """A call that ran once and would not run now."""

    step: int  # of the original
    tool: str
    arguments: str
    why: str


def aligned(a: Trace, b: Trace) -> Iterator[tuple[StepTrace | None, StepTrace | None]]:
    """The steps of the main lines, beginning where one was rerun from the other."""
    return zip_longest(_from(a, b), _from(b, a))


def _from(trace: Trace, other: Trace) -> list[StepTrace]:
    origin = other.rerun_of
    if origin is None or origin.session_id != trace.session_id:
        return trace.steps
    return [step for step in trace.steps if step.step >= origin.from_step]


def parting(a: Trace, b: Trace) -> Parting | None:
    for one, other in aligned(a, b):
        if one is None or other is None:
            return Parting("length", one.step if one else None, other.step if other else None, _gist(one), _gist(other))
        if found := _within(one, other):
            return found
    ends = [f"{trace.status} ({trace.reason}): {trace.output or trace.error or ''}" for trace in (a, b)]
    return Parting("ending", None, None, *ends) if ends[0] != ends[1] else None


def _within(a: StepTrace, b: StepTrace) -> Parting | None:
    steps = (a.step, b.step)
    if _text(a) != _text(b):
        return Parting("text", *steps, _text(a), _text(b))
    calls = list(zip_longest(a.tools, b.tools))
    for one, other in calls:
        if _call(one) != _call(other):
            return Parting("tool_call", *steps, _call(one), _call(other), _name(one, other))
    for one, other in calls:
        if _result(one) != _result(other):
            return Parting("tool_result", *steps, _result(one), _result(other), _name(one, other))
    return None


def _text(step: StepTrace) -> str:
    return "\n\n".join(span.text for span in step.models)


def _call(span: ToolSpan | None) -> str:
    return f"{span.tool} {span.arguments}" if span else "no call"


def _result(span: ToolSpan | None) -> str:
    return f"{span.state}: {span.result}" if span else "no call"


def _name(a: ToolSpan | None, b: ToolSpan | None) -> str:
    known = a or b
    assert known is not None
    return known.tool


def _gist(step: StepTrace | None) -> str:
    if step is None:
        return "ended before"
    return _text(step) or ", ".join(_call(tool) for tool in step.tools)


def stopped(original: Trace, recorded: Trace) -> list[StoppedCall]:
    """In a recorded rerun every result is the original's, save those of calls that were stopped."""
    return [stop for step, again in aligned(original, recorded) for stop in _stopped(step, again)]


def _stopped(step: StepTrace | None, again: StepTrace | None) -> Iterator[StoppedCall]:
    """Of a call in which a subagent worked, the calls that were stopped inside it."""
    if step is None or again is None:
        return
    for tool, now in zip(step.tools, again.tools, strict=False):
        if tool.steps and now.steps:
            for inner, inner_again in zip_longest(tool.steps, now.steps):
                yield from _stopped(inner, inner_again)
        elif tool.result != now.result:
            yield StoppedCall(step.step, tool.tool, tool.arguments, now.result)


def sessions_below(trace: Trace) -> list[str]:
    """The subagents with sessions of their own, at any depth."""
    calls = [call for step in _every_step(trace.steps) for call in step.tools]
    below = [*trace.sessions, *(child for call in calls for child in call.sessions)]
    return [found for child in below for found in (child.session_id, *sessions_below(child))]


def _every_step(steps: list[StepTrace]) -> Iterator[StepTrace]:
    for step in steps:
        yield step
        for call in step.tools:
            yield from _every_step(call.steps)


def figures(trace: Trace) -> dict[str, Any]:
    began, ended = trace.started_at or trace.created_at, trace.ended_at
    return {
        "task_id": trace.session_id,
        "status": trace.status,
        "reason": trace.reason,
        "steps": len(trace.steps),
        "duration_ms": round((ended - began).total_seconds() * 1_000) if ended else None,
        **trace.usage.model_dump(),
        "tokens": trace.usage.tokens,
    }
