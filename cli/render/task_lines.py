"""Lines about a task that several commands print: its usage, its error, its plan."""

from collections.abc import Iterable

from errand.models import PlanStep, TaskError, Usage

from cli.render.output import dollars, one_line
from domain.amounts import counted

MARKS = {"done": "[x]", "in_progress": "[>]", "skipped": "[-]"}


def usage_line(usage: Usage) -> str:
    calls = f"{counted(usage.llm_calls, 'model call')}, {counted(usage.tool_invocations, 'tool call')}"
    return f"{calls}, {usage.tokens:,} tokens, {dollars(usage.cost_usd)}"


def error_line(error: TaskError | None) -> str:
    return one_line(f"{error.type}: {error.message}", 1_000) if error else ""


def plan_lines(steps: Iterable[PlanStep]) -> list[str]:
    return [f"{MARKS.get(step.status, '[ ]')} {one_line(step.title)}" for step in steps]
