"""`errand trace`, `diff` and `attempts`: what a task did step by step, and where two tasks or its attempts differ."""

from dataclasses import asdict

import click
from errand.models import AttemptPage, Trace

from cli.api import Api, parse, segment
from cli.commands.pull import fetch_patch
from cli.errors import Exit
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import clean, dim, duration, emit, note, one_line, show_usage, style_status, table
from cli.render.traces import TraceDifference, figures, first_difference, trace_lines
from domain.amounts import format_count

FULL_TEXT = 100_000  # characters of each text in JSON
SHORT_TEXT = 2_000


@click.command()
@click.argument("task_id", type=TaskId())
@remote
def trace(api: Api, task_id: str, as_json: bool) -> None:
    """Show a task step by step: thoughts, tool calls, results, time, tokens and cost, with its subagents inside.

    \b
    Examples:
      ./errand trace ID
      ./errand trace ID --json | jq '.steps[].models[].usage.cost_usd'

    The console has the same as a page, which you can share as one file.
    """
    if as_json:
        emit(api.trace(task_id, FULL_TEXT).model_dump(mode="json"))
    else:
        for line in trace_lines(api.trace(task_id, SHORT_TEXT)):
            click.echo(line)


DESCRIPTIONS = {
    "text": "different text",
    "tool_call": "different tool call",
    "tool_result": "different result",
    "length": "one of them ended",
    "ending": "different ending",
}


@click.command()
@click.argument("a", type=TaskId())
@click.argument("b", type=TaskId(), required=False)
@remote
def diff(api: Api, a: str, b: str | None, as_json: bool) -> None:
    """Show what task A changed in its repository, or where task B differs from it: the first text, call, result or
    ending, and what each cost.

    A rerun is compared with its original from the step at which it starts. The exit code is 0 if they are the same,
    1 if not.

    \b
    Examples:
      ./errand diff A | less
      ./errand diff A B
      ./errand diff A B --json | jq .parted.what
    """
    if b is None:
        patch = clean(fetch_patch(api, a)[0].decode(errors="replace"))
        emit({"patch": patch}) if as_json else click.echo(patch, nl=False)
        return
    trace_a, trace_b = api.trace(a, FULL_TEXT), api.trace(b, FULL_TEXT)
    found = first_difference(trace_a, trace_b)
    if as_json:
        difference = asdict(found) if found else None
        both = {name: figures(trace).model_dump(mode="json") for name, trace in (("a", trace_a), ("b", trace_b))}
        emit({"same": found is None, "parted": difference, **both})
    else:
        for name, trace in (("A", trace_a), ("B", trace_b)):
            known, reason = figures(trace), f" ({trace.reason})" if trace.reason else ""
            took = "" if known.duration_ms is None else f", {duration(known.duration_ms / 1_000)}"
            used = dim(f"{format_count(known.steps, 'step')}, {show_usage(trace.usage)}{took}")
            click.echo(f"{name}  {known.task_id}  {style_status(known.status)}{reason}  {used}")
        for name, trace, other in (("A", trace_a, trace_b), ("B", trace_b, trace_a)):
            _show_origin(name, trace, other)
        _show_difference(found)
    raise SystemExit(int(Exit.FAILED if found else Exit.OK))


def _show_origin(name: str, trace: Trace, other: Trace) -> None:
    """Print what a rerun was started with: it is not a difference of the two, but the reason for one."""
    origin = trace.rerun_of
    if origin is not None and origin.session_id == other.session_id:
        changed = f", changed: {', '.join(origin.changed)}" if origin.changed else ""
        click.echo(dim(f"{name} repeats the other from step {origin.from_step}{changed}"))


def _show_difference(found: TraceDifference | None) -> None:
    if found is None:
        click.echo("They are the same.")
        return
    step = "" if found.step_a is None and found.step_b is None else f" at step {_step(found.step_a, found.step_b)}"
    tool = f" of {one_line(found.tool)}" if found.tool else ""
    click.echo(f"They differ{step}: {DESCRIPTIONS[found.what]}{tool}")
    click.echo(click.style(f"- {one_line(found.a, 500)}", fg="red"))
    click.echo(click.style(f"+ {one_line(found.b, 500)}", fg="green"))


def _step(a: int | None, b: int | None) -> str:
    if a == b or a is None or b is None:
        return str(a if a is not None else b)
    return f"{a} of A, {b} of B"


@click.command()
@click.argument("task_id", type=TaskId())
@remote
def attempts(api: Api, task_id: str, as_json: bool) -> None:
    """Compare the attempts of a task: which met its criteria, what each changed and cost, and which one was chosen.

    \b
    Examples:
      ./errand attempts last
      ./errand diff ATTEMPT | less
      ./errand apply ATTEMPT --check
      ./errand attempts ID --json | jq -r '.items[] | select(.passed) | .task_id'
    """
    answer = api.get(f"/tasks/{segment(task_id)}/attempts")
    if as_json:
        emit(answer)
        return
    page = parse(AttemptPage, answer)
    rows = []
    for one in page.items:
        met = f"{sum(verdict.passed for verdict in one.verdicts)} of {len(one.verdicts)}" if one.verdicts else "-"
        row = ["*" if one.chosen else "", str(one.number), one.status, met, one_line(one.changes or "none", 60)]
        rows.append([*row, str(one.steps), show_usage(one.usage), one.task_id])
    table(["", "ATTEMPT", "STATUS", "CRITERIA", "CHANGES", "STEPS", "COST", "TASK"], rows)
    if page.chosen_by is not None:
        note(f"chosen by {page.chosen_by}: {one_line(page.why or '', 300)}")
    elif not page.items:
        note("this task has no attempts")
