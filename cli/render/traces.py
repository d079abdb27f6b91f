"""Traces for people: one as text, and two compared: their first difference, stopped calls, and the usage of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest

import click
from errand.models import Mark, ModelSpan, Status, StepTrace, ToolSpan, Trace, Usage
from pydantic import computed_field

from cli.render.output import dim, duration, one_line, show_usage, style_status
from domain.amounts import format_count


def trace_lines(trace: Trace) -> Iterator[str]:
    """The lines of the tree, without control codes that a model or a tool wrote."""
    name = trace.name if trace.name not in (None, trace.agent) else None
    label = f"{one_line(name)} ({trace.agent})" if name else trace.agent
    ending = f" ({trace.reason})" if trace.reason else ""
    yield (
        click.style(label, bold=True)
        + f"  {trace.session_id}  {style_status(trace.status)}{ending}  "
        + dim(", ".join([*_took(trace.started_at, trace.ended_at), show_usage(trace.usage)]))
    )
    if trace.title:
        yield dim(f"  {one_line(trace.title)}")
    if trace.rerun_of:
        recorded = " with recorded answers" if trace.rerun_of.recorded else ""
        yield dim(f"  rerun of {trace.rerun_of.session_id} from step {trace.rerun_of.from_step}{recorded}")
    started = trace.started_at or trace.created_at
    marks = list(trace.marks)
    for index, step in enumerate(trace.steps):
        next_start = trace.steps[index + 1].started_at if index + 1 < len(trace.steps) else None
        in_step = [mark for mark in marks if next_start is None or mark.at < next_start]
        marks = marks[len(in_step) :]
        yield from _step(step, started, in_step)
    for mark in marks:
        yield _mark(mark)
    if trace.error:
        yield click.style(f"  failed: {one_line(trace.error, 500)}", fg="red")
    for child in trace.sessions:
        yield from _indent(trace_lines(child))
    if not trace.complete:
        yield dim("  (the trace was cut: there is more)")


def _step(step: StepTrace, started: datetime, marks: list[Mark]) -> Iterator[str]:
    first, further = (step.models[0] if step.models else None), step.models[1:]
    at = max(0.0, (step.started_at - started).total_seconds())
    model = f"  {_model(first)}" if first else ""
    speaker = f" {one_line(step.speaker)}" if step.speaker else ""
    yield click.style(f"  step {step.step}{speaker}", bold=True) + dim(f"  at {duration(at)}{model}")
    yield from _text(first)
    for tool in step.tools:
        yield from _tool(tool, started)
    for span in further:
        yield dim(f"    then {_model(span)}")
        yield from _text(span)
    for mark in marks:
        yield _mark(mark)


def _model(span: ModelSpan) -> str:
    tries = f", {format_count(span.attempts, 'attempt')}" if span.attempts > 1 else ""
    took = duration((span.ended_at - span.started_at).total_seconds())
    return f"{one_line(span.model)}, {took}{tries}, {show_usage(span.usage)}"


def _text(span: ModelSpan | None) -> Iterator[str]:
    if span and span.thinking.strip():
        yield dim(f"    think    {one_line(span.thinking, 300)}")
    if span and span.text.strip():
        yield f"    decide   {one_line(span.text, 300)}"


def _tool(span: ToolSpan, started: datetime) -> Iterator[str]:
    took = "".join(f"  {text}" for text in _took(span.started_at, span.ended_at))
    act = dim(f"    act {span.index:<4} ") + click.style(f"{one_line(span.tool)} ", fg="cyan")
    yield act + one_line(span.arguments, 200) + dim(took)
    for step in span.steps:
        yield from _indent(_step(step, started, []))
    for child in span.sessions:
        yield from _indent(trace_lines(child))
    colour = {"ok": "green", "started": "cyan"}.get(span.state, "red")
    yield f"    observe  {click.style(one_line(span.state), fg=colour)} {one_line(span.result, 200)}".rstrip()


def _mark(mark: Mark) -> str:
    return dim(f"    .        {mark.type.replace('_', ' ')}: {one_line(mark.text, 200)}")


def _indent(inner: Iterator[str]) -> Iterator[str]:
    for line in inner:
        yield dim("    │ ") + line


def _took(start: datetime | None, end: datetime | None) -> list[str]:
    return [duration(max(0.0, (end - start).total_seconds()))] if start and end else []


# two traces compared


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


def align_steps(a: Trace, b: Trace) -> Iterator[tuple[StepTrace | None, StepTrace | None]]:
    """Pair the steps of both traces; of a rerun and its original, from the step at which the rerun starts."""
    return zip_longest(_select_compared(a, b), _select_compared(b, a))


def _select_compared(trace: Trace, other: Trace) -> list[StepTrace]:
    origin = other.rerun_of
    if origin is None or origin.session_id != trace.session_id:
        return trace.steps
    return [step for step in trace.steps if step.step >= origin.from_step]


def first_difference(a: Trace, b: Trace) -> TraceDifference | None:
    for step_a, step_b in align_steps(a, b):
        if step_a is None or step_b is None:
            steps = (step_a.step if step_a else None, step_b.step if step_b else None)
            return TraceDifference("length", *steps, _summary(step_a), _summary(step_b))
        if found := _step_difference(step_a, step_b):
            return found
    ends = [f"{trace.status} ({trace.reason}): {trace.output or trace.error or ''}" for trace in (a, b)]
    return TraceDifference("ending", None, None, *ends) if ends[0] != ends[1] else None


def _step_difference(a: StepTrace, b: StepTrace) -> TraceDifference | None:
    steps = (a.step, b.step)
    if _said(a) != _said(b):
        return TraceDifference("text", *steps, _said(a), _said(b))
    calls = list(zip_longest(a.tools, b.tools))
    for one, other in calls:
        if _call(one) != _call(other):
            return TraceDifference("tool_call", *steps, _call(one), _call(other), _name(one, other))
    for one, other in calls:
        if _result(one) != _result(other):
            return TraceDifference("tool_result", *steps, _result(one), _result(other), _name(one, other))
    return None


def _said(step: StepTrace) -> str:
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
    return _said(step) or ", ".join(_call(tool) for tool in step.tools)


def find_stopped_calls(original: Trace, rerun: Trace) -> list[StoppedCall]:
    """The calls that a recorded rerun stopped: every other call has the original's result."""
    return [stop for before, now in align_steps(original, rerun) for stop in _find_stopped(before, now)]


def _find_stopped(before: StepTrace | None, now: StepTrace | None) -> Iterator[StoppedCall]:
    if before is None or now is None:
        return
    for call, again in zip(before.tools, now.tools, strict=False):
        if call.steps and again.steps:  # a subagent ran inside this call, so compare its calls instead
            for inner, inner_again in zip_longest(call.steps, again.steps):
                yield from _find_stopped(inner, inner_again)
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
