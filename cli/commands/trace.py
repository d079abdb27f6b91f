"""`errand trace`: plan, act, observe: a task step by step as a tree, as JSON, or as a page to open from disk."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import click

from cli.client.api import Api, part
from cli.options import remote
from cli.render.output import dim, duration, emit, note, one_line, status_word
from cli.render.saving import save
from cli.render.trace_page import page
from domain.sessions.session import Usage
from domain.sessions.trace import Mark, ModelSpan, StepTrace, ToolSpan, Trace

WIDE = 100_000  # characters of each text for a page


@click.command()
@click.argument("task_id")
@click.option(
    "--html",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write one page with timeline, tree and cost, which opens from disk.",
)
@remote
def trace(api: Api, task_id: str, file: Path | None, as_json: bool) -> None:
    """Show what a task thought, did and saw, step by step: when, for how many tokens, at what cost; subagents inside.

    \b
    Examples:
      ./errand trace ID
      ./errand trace ID --html trace.html
      ./errand trace ID --json | jq '.steps[].models[].usage.cost_usd'
    """
    found = read_trace(api, task_id, WIDE if file or as_json else 2_000)
    if file is not None:
        save(file, page(found))
        note(f"wrote {file}: open it in a browser")
    if as_json:
        emit(found.model_dump(mode="json"))
    elif file is None:
        for line in lines(found):
            click.echo(line)


def read_trace(api: Api, task_id: str, chars: int) -> Trace:
    return Trace.model_validate(api.get(f"/tasks/{part(task_id)}/trace", chars=chars))


def lines(trace: Trace) -> Iterator[str]:
    """The tree; every line is safe to print whatever a model or a tool wrote."""
    who = trace.name if trace.name not in (None, trace.agent) else None
    label = f"{one_line(who)} ({trace.agent})" if who else trace.agent
    ending = f" ({trace.reason})" if trace.reason else ""
    yield (
        click.style(label, bold=True)
        + f"  {trace.session_id}  {status_word(trace.status)}{ending}  "
        + dim(", ".join([*_took(trace.started_at, trace.ended_at), spent(trace.usage)]))
    )
    if trace.title:
        yield dim(f"  {one_line(trace.title)}")
    if trace.rerun_of:
        how = " with recorded answers" if trace.rerun_of.recorded else ""
        yield dim(f"  a rerun of {trace.rerun_of.session_id} from step {trace.rerun_of.from_step}{how}")
    began = trace.started_at or trace.created_at
    marks = list(trace.marks)
    for place, step in enumerate(trace.steps):
        last = trace.steps[place + 1].started_at if place + 1 < len(trace.steps) else None
        mine = [mark for mark in marks if last is None or mark.at < last]
        marks = marks[len(mine) :]
        yield from _step(step, began, mine)
    for mark in marks:
        yield _mark(mark)
    if trace.error:
        yield click.style(f"  failed: {one_line(trace.error, 500)}", fg="red")
    for child in trace.sessions:
        yield from _inside(lines(child))
    if not trace.complete:
        yield dim("  (there is more than a trace shows)")


def _step(step: StepTrace, began: datetime, marks: list[Mark]) -> Iterator[str]:
    first, further = (step.models[0] if step.models else None), step.models[1:]
    at = max(0.0, (step.started_at - began).total_seconds())
    about = f"  {_model(first)}" if first else ""
    yield click.style(f"  step {step.step}", bold=True) + dim(f"  at {duration(at)}{about}")
    yield from _said(first)
    for tool in step.tools:
        yield from _tool(tool, began)
    for span in further:
        yield dim(f"    then {_model(span)}")
        yield from _said(span)
    for mark in marks:
        yield _mark(mark)


def _model(span: ModelSpan) -> str:
    tries = f", {span.attempts} attempts" if span.attempts > 1 else ""
    took = duration((span.ended_at - span.started_at).total_seconds())
    return f"{one_line(span.model)}, {took}{tries}, {spent(span.usage)}"


def _said(span: ModelSpan | None) -> Iterator[str]:
    if span and span.thinking.strip():
        yield dim(f"    think    {one_line(span.thinking, 300)}")
    if span and span.text.strip():
        yield f"    decide   {one_line(span.text, 300)}"


def _tool(span: ToolSpan, began: datetime) -> Iterator[str]:
    took = "".join(f"  {words}" for words in _took(span.started_at, span.ended_at))
    act = dim(f"    act {span.index:<4} ") + click.style(f"{one_line(span.tool)} ", fg="cyan")
    yield act + one_line(span.arguments, 200) + dim(took)
    for step in span.steps:
        yield from _inside(_step(step, began, []))
    for child in span.sessions:
        yield from _inside(lines(child))
    colour = {"ok": "green", "started": "cyan"}.get(span.state, "red")
    yield f"    observe  {click.style(one_line(span.state), fg=colour)} {one_line(span.result, 200)}".rstrip()


def _mark(mark: Mark) -> str:
    return dim(f"    .        {mark.type.replace('_', ' ')}: {one_line(mark.text, 200)}")


def _inside(inner: Iterator[str]) -> Iterator[str]:
    for line in inner:
        yield dim("    │ ") + line


def _took(start: datetime | None, end: datetime | None) -> list[str]:
    return [duration(max(0.0, (end - start).total_seconds()))] if start and end else []


def spent(usage: Usage) -> str:
    cost = "cost unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
    return f"{usage.tokens:,} tokens, {cost}"
