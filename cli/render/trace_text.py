"""A trace as a tree of text lines."""

from collections.abc import Iterator
from datetime import datetime

import click
from errand.models import Mark, ModelSpan, StepTrace, ToolSpan, Trace

from cli.render.output import dim, duration, one_line, spent, styled_status
from domain.amounts import counted


def trace_lines(trace: Trace) -> Iterator[str]:
    """The lines of the tree, without control codes that a model or a tool wrote."""
    name = trace.name if trace.name not in (None, trace.agent) else None
    label = f"{one_line(name)} ({trace.agent})" if name else trace.agent
    ending = f" ({trace.reason})" if trace.reason else ""
    yield (
        click.style(label, bold=True)
        + f"  {trace.session_id}  {styled_status(trace.status)}{ending}  "
        + dim(", ".join([*_took(trace.started_at, trace.ended_at), spent(trace.usage)]))
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
        yield from _indented(trace_lines(child))
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
    tries = f", {counted(span.attempts, 'attempt')}" if span.attempts > 1 else ""
    took = duration((span.ended_at - span.started_at).total_seconds())
    return f"{one_line(span.model)}, {took}{tries}, {spent(span.usage)}"


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
        yield from _indented(_step(step, started, []))
    for child in span.sessions:
        yield from _indented(trace_lines(child))
    colour = {"ok": "green", "started": "cyan"}.get(span.state, "red")
    yield f"    observe  {click.style(one_line(span.state), fg=colour)} {one_line(span.result, 200)}".rstrip()


def _mark(mark: Mark) -> str:
    return dim(f"    .        {mark.type.replace('_', ' ')}: {one_line(mark.text, 200)}")


def _indented(inner: Iterator[str]) -> Iterator[str]:
    for line in inner:
        yield dim("    │ ") + line


def _took(start: datetime | None, end: datetime | None) -> list[str]:
    return [duration(max(0.0, (end - start).total_seconds()))] if start and end else []
