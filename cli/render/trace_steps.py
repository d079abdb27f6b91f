"""Walking a trace: every step inside it, the sessions below it, and what a span used."""

from collections.abc import Iterator

from cli.render.output import dollars
from domain.sessions.session import Usage
from domain.sessions.trace import StepTrace, Trace


def every_step(steps: list[StepTrace]) -> Iterator[StepTrace]:
    """All steps, with those that subagents took inside a call after the step of that call."""
    for step in steps:
        yield step
        for call in step.tools:
            yield from every_step(call.steps)


def child_sessions(trace: Trace) -> list[Trace]:
    """The traces of subagents with a session of their own that this session started."""
    inside = [child for step in every_step(trace.steps) for call in step.tools for child in call.sessions]
    return [*inside, *trace.sessions]


def session_ids_below(trace: Trace) -> list[str]:
    """The ids of all subagents with a session of their own, at any depth."""
    return [found for child in child_sessions(trace) for found in (child.session_id, *session_ids_below(child))]


def spent(usage: Usage) -> str:
    return f"{usage.tokens:,} tokens, {dollars(usage.cost_usd)}"
