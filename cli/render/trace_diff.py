"""Compares two traces: their first difference, the calls that a recorded rerun stopped, and the usage of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from errand.models import Status, StepTrace, ToolSpan, Trace, Usage
from pydantic import computed_field


class TraceFigures(Usage):
    """The usage and the end of a task."""

    task_id: str
    status: Status
    reason: str | None
    steps: int
    duration_ms: int | None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def tokens(self) -> int:
        return super().tokens


@dataclass(frozen=True)
class TraceDifference:
    """The first difference of two traces; a step is None for the trace that lacks it."""

    what: str  # text | tool_call | tool_result | length | ending
    step_a: int | None
    step_b: int | None
    a: str
    b: str
    tool: str | None = None


@dataclass(frozen=True)
class StoppedCall:
    """A call of the original that the rerun's rules or limits stopped."""

    step: int  # of the original
    tool: str
    arguments: str
    why: str


def aligned(a: Trace, b: Trace) -> Iterator[tuple[StepTrace | None, StepTrace | None]]:
    """Pair the steps of both traces; of a rerun and its original, from the step at which the rerun starts."""
    return zip_longest(_compared_steps(a, b), _compared_steps(b, a))


def _compared_steps(trace: Trace, other: Trace) -> list[StepTrace]:
    origin = other.rerun_of
    if origin is None or origin.session_id != trace.session_id:
        return trace.steps
    return [step for step in trace.steps if step.step >= origin.from_step]


def first_difference(a: Trace, b: Trace) -> TraceDifference | None:
    for step_a, step_b in aligned(a, b):
        if step_a is None or step_b is None:
            steps = (step_a.step if step_a else None, step_b.step if step_b else None)
            return TraceDifference("length", *steps, _summary(step_a), _summary(step_b))
        if found := _step_difference(step_a, step_b):
            return found
    ends = [f"{trace.status} ({trace.reason}): {trace.output or trace.error or ''}" for trace in (a, b)]
    return TraceDifference("ending", None, None, *ends) if ends[0] != ends[1] else None


def _step_difference(a: StepTrace, b: StepTrace) -> TraceDifference | None:
    steps = (a.step, b.step)
    if _text(a) != _text(b):
        return TraceDifference("text", *steps, _text(a), _text(b))
    calls = list(zip_longest(a.tools, b.tools))
    for one, other in calls:
        if _call(one) != _call(other):
            return TraceDifference("tool_call", *steps, _call(one), _call(other), _name(one, other))
    for one, other in calls:
        if _result(one) != _result(other):
            return TraceDifference("tool_result", *steps, _result(one), _result(other), _name(one, other))
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


def _summary(step: StepTrace | None) -> str:
    if step is None:
        return "ended before this step"
    return _text(step) or ", ".join(_call(tool) for tool in step.tools)


def stopped_calls(original: Trace, rerun: Trace) -> list[StoppedCall]:
    """The calls that a recorded rerun stopped: every other call has the original's result."""
    return [stop for before, now in aligned(original, rerun) for stop in _stopped_in(before, now)]


def _stopped_in(before: StepTrace | None, now: StepTrace | None) -> Iterator[StoppedCall]:
    if before is None or now is None:
        return
    for call, again in zip(before.tools, now.tools, strict=False):
        if call.steps and again.steps:  # a subagent ran inside this call, so compare its calls instead
            for inner, inner_again in zip_longest(call.steps, again.steps):
                yield from _stopped_in(inner, inner_again)
        elif call.result != again.result:
            yield StoppedCall(before.step, call.tool, call.arguments, again.result)


def figures(trace: Trace) -> TraceFigures:
    """The usage and the end of a task, for people and for `--json`."""
    started, ended = trace.started_at or trace.created_at, trace.ended_at
    return TraceFigures(
        task_id=trace.session_id,
        status=trace.status,
        reason=trace.reason,
        steps=len(trace.steps),
        duration_ms=round((ended - started).total_seconds() * 1_000) if ended else None,
        **trace.usage.model_dump(),
    )
