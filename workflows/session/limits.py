"""Limits of a step: the number of tool calls, the counters, and whether the line repeats itself."""

from datetime import timedelta

from domain import limits as loop_detection
from domain.amounts import counted
from domain.limits import find_reached_limit
from domain.sessions.session import Reason
from domain.sessions.session_state import Line
from domain.sessions.step import CallState, Effect, ToolCall, ToolOutcome
from workflows.session.context import Ending, SessionContext

OVER_LIMIT = "This session has reached its limit of tool calls. This one was not run."
DENIED = "The rules of this task denied {}; further attempts will not succeed."
TREE_SPENT = "The budget of tool calls that this session shares with its tree is spent."


def limit_reached(session: SessionContext) -> Ending | None:
    """The limit that forbids another step."""
    state = session.state
    if session.spent:
        return session.spent
    limit = find_reached_limit(session.limits, state.step, state.usage.plus(state.recorded))
    return Ending(limit) if limit else None


def refused(call: ToolCall, why: str) -> ToolCall:
    """The same call, answered with a refusal instead of being run."""
    return call.model_copy(
        update={
            "activity": "tool.refuse",
            "effect": Effect.READ,
            "refusal": why,
            "ask": False,
            "timeout_s": 10,
            "bookkeeping": True,
        }
    )


def within_limit(session: SessionContext, calls: list[ToolCall]) -> list[ToolCall]:
    """Refuse the calls beyond the limit of tool calls; the session ends after this step."""
    most = session.limits.tool_calls
    if most is None:
        return calls
    left = max(0, most - session.state.usage.tool_invocations - session.calling)
    if len(calls) > left:
        session.spent = Ending(Reason.TOOL_LIMIT)
    return [*calls[:left], *(refused(call, OVER_LIMIT) for call in calls[left:])]


def count(session: SessionContext, outcomes: list[ToolOutcome], calls: list[ToolCall]) -> None:
    state, over = session.state, sum(call.refusal == OVER_LIMIT for call in calls)
    state.usage.tool_invocations += len(outcomes) - over
    state.failed_calls += sum(outcome.state is not CallState.OK for outcome in outcomes) - over
    state.denied_calls += sum(outcome.denied for outcome in outcomes)
    state.forbidden_calls += sum(outcome.forbidden for outcome in outcomes)
    most = session.limits.denied
    if most is not None and state.forbidden_calls >= most:
        session.spent = Ending(
            Reason.POLICY_DENIED, "policy_denied", DENIED.format(counted(state.forbidden_calls, "call"))
        )
    if any(outcome.spent for outcome in outcomes):
        session.spent = Ending(Reason.TREE_BUDGET, "tree_budget", TREE_SPENT)


def repeats_itself(session: SessionContext, line: Line, outcomes: list[ToolOutcome], took: timedelta) -> bool:
    limits = session.limits
    line.trail = loop_detection.extend_trail(line.trail, outcomes, took.total_seconds(), limits.repeats)
    verdict = loop_detection.judge_trail(line.trail, limits.repeats_warning, limits.repeats)
    if verdict is loop_detection.LoopVerdict.WARN:
        line.note = "\n\n".join(filter(None, [line.note, loop_detection.WARNING]))
    return verdict is loop_detection.LoopVerdict.BREAK
