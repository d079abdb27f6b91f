"""Building blocks of the output: safe text, tables, durations, sizes, JSON, files, and lines about a task."""

import json
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from errand.models import PlanStep, TaskError, Usage

from domain.amounts import clean as clean
from domain.amounts import dollars as dollars
from domain.amounts import duration as duration
from domain.amounts import format_count
from settings import INSTALLED

PROGRAM = "errand" if INSTALLED else "./errand"  # as people type it


def one_line(text: str, limit: int = 160) -> str:
    line = clean(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def json_wanted() -> bool:
    context = click.get_current_context(silent=True)
    return bool(context and context.params.get("as_json"))


def fetch_command(task_id: str, artifact: str) -> str:
    """The command that downloads an artifact, quoted so that any artifact's name is safe to paste."""
    return f"{PROGRAM} result {task_id} --artifact {shlex.quote(clean(artifact))} -o FILE"


def emit(value: Any, *, err: bool = False) -> None:
    """Print a JSON value on one line, in ASCII, so that no terminal or locale can garble it."""
    click.echo(json.dumps(value, separators=(",", ":")), err=err)


def note(text: str) -> None:
    """Print a remark on stderr, so that stdout stays clean for a pipe."""
    click.echo(click.style(clean(text), dim=True), err=True)


def dim(text: str) -> str:
    return click.style(text, dim=True)


STATUS_COLOURS = {"completed": "green", "failed": "red", "cancelled": "yellow", "input_required": "magenta"}


def style_status(status: str) -> str:
    return click.style(status, fg=STATUS_COLOURS.get(status, "cyan"))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as their content; on a terminal the last one is cut at the edge."""
    if not rows:
        note("nothing to list")
        return
    widths = [max([len(headers[i])] + [len(click.unstyle(row[i])) for row in rows]) for i in range(len(headers) - 1)]
    room = (
        max(20, shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths)) if sys.stdout.isatty() else 10_000
    )
    for number, row in enumerate([headers, *rows]):
        cells = [cell + " " * (width - len(click.unstyle(cell))) for cell, width in zip(row, widths, strict=False)]
        line = "  ".join([*cells, one_line(row[-1], room)]).rstrip()
        click.echo(click.style(line, bold=True) if number == 0 else line)


def facts(pairs: Sequence[tuple[str, str | None]]) -> None:
    """Print name and value, one pair a line; pairs without a value are left out."""
    known = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        click.echo(f"{dim((name + ':').ljust(width + 1))} {value}")


def age(moment: datetime | None) -> str:
    if not moment:
        return ""
    seconds = max(0.0, (datetime.now(UTC) - moment).total_seconds())
    return duration(seconds) + " ago"


def moment(when: datetime) -> str:
    """A time in the local time zone, to the minute, with its distance from now."""
    left = (when - datetime.now(UTC)).total_seconds()
    distance = f"in {duration(left)}" if left >= 0 else f"{duration(-left)} ago"
    return f"{when.astimezone():%Y-%m-%d %H:%M} ({distance})"


def show_usage(usage: Usage) -> str:
    return f"{usage.tokens:,} tokens, {dollars(usage.cost_usd)}"


def size(count: int) -> str:
    if count < 1_000:
        return f"{count} B"
    return f"{count / 1_000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


# lines about a task: its usage, its error, its plan


MARKS = {"done": "[x]", "in_progress": "[>]", "skipped": "[-]"}


def usage_line(usage: Usage) -> str:
    calls = f"{format_count(usage.llm_calls, 'model call')}, {format_count(usage.tool_invocations, 'tool call')}"
    return f"{calls}, {usage.tokens:,} tokens, {dollars(usage.cost_usd)}"


def error_line(error: TaskError | None) -> str:
    return one_line(f"{error.type}: {error.message}", 1_000) if error else ""


def plan_lines(steps: Iterable[PlanStep]) -> list[str]:
    return [f"{MARKS.get(step.status, '[ ]')} {one_line(step.title)}" for step in steps]
