"""The first difference of two traces, the calls that a recorded rerun stopped, and pages of nearly empty traces."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from errand import models
from errand.models import ModelSpan, Rerun, StepTrace, ToolSpan, Trace

from cli.render.traces import figures, find_stopped_calls, first_difference, trace_lines
from domain.sessions.session import Status, Usage

TEN_TOKENS = models.Usage.model_validate(Usage(input_tokens=10))
NOW = datetime(2026, 11, 16, tzinfo=UTC)


def step(number: int, text: str, *tools: tuple[str, str, str]) -> StepTrace:
    """Make a step; each tool call is a name, arguments and a result."""
    later = NOW + timedelta(seconds=number)
    return StepTrace(
        step=number,
        started_at=later,
        models=[ModelSpan(model="m", started_at=later, ended_at=later, text=text, usage=TEN_TOKENS)],
        tools=[
            ToolSpan(
                index=place,
                tool=name,
                arguments=arguments,
                effect="read",
                state="ok",
                result=result,
                started_at=later,
                ended_at=later,
            )
            for place, (name, arguments, result) in enumerate(tools)
        ],
    )


def trace(*steps: StepTrace, session_id: str = "a", **more: Any) -> Trace:
    known: dict[str, Any] = {
        "session_id": session_id,
        "conversation_id": "c",
        "agent": "tester",
        "agent_version": 1,
        "name": None,
        "title": "t",
        "status": Status.COMPLETED,
        "reason": "goal_reached",
        "partial": False,
        "error": None,
        "output": "o",
        "created_at": NOW,
        "started_at": NOW,
        "ended_at": NOW + timedelta(seconds=9),
        "usage": Usage(cost_usd=0.5),
    }
    return Trace(**(known | {"steps": list(steps)} | more))


LOOK = ("look", "{}", "seen")


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (trace(step(1, "x", LOOK), step(2, "done")), None),
        (trace(step(1, "y", LOOK), step(2, "done")), "text"),
        (trace(step(1, "x", ("touch", "{}", "seen")), step(2, "done")), "tool_call"),
        (trace(step(1, "x"), step(2, "done")), "tool_call"),
        (trace(step(1, "x", ("look", "{}", "blind")), step(2, "done")), "tool_result"),
        (trace(step(1, "x", LOOK)), "length"),
        (trace(step(1, "x", LOOK), step(2, "done"), output="p"), "ending"),
    ],
)
def test_diff_finds_the_first_difference(other: Trace, what: str | None) -> None:
    found = first_difference(trace(step(1, "x", LOOK), step(2, "done")), other)
    assert (found.what if found else None) == what
    again = first_difference(other, trace(step(1, "x", LOOK), step(2, "done")))
    assert (again.what if again else None) == what


def test_rerun_is_compared_from_the_step_it_starts_at() -> None:
    original = trace(step(1, "x"), step(4, "y", LOOK), step(5, "z"))
    rerun = trace(
        step(1, "y", ("look", "{}", "denied")),
        step(2, "z"),
        session_id="b",
        rerun_of=Rerun(session_id="a", from_step=4),
    )
    found = first_difference(original, rerun)
    assert found is not None and (found.what, found.step_a, found.step_b) == ("tool_result", 4, 1)
    [stop] = find_stopped_calls(original, rerun)
    assert (stop.step, stop.tool, stop.why) == (4, "look", "denied")
    assert (figures(original).duration_ms, figures(original).cost_usd) == (9_000, 0.5)


def test_trace_of_a_task_that_has_not_started_can_be_shown() -> None:
    nothing = trace(started_at=None, ended_at=None, status=Status.SUBMITTED, reason=None, output=None, usage=Usage())
    assert "tester" in next(trace_lines(nothing))
    unfinished = step(1, "x", LOOK)
    unfinished.tools[0] = unfinished.tools[0].model_copy(update={"ended_at": None, "state": "started"})
    running = trace(unfinished, ended_at=None, status=Status.WORKING, reason=None, output=None, complete=False)
    assert any("started" in line for line in trace_lines(running))
