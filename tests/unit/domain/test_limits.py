"""Limits: what ends a session or a turn of a side, what it may still spend, and how loops and anomalies are noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.agents.definition import Binding, Side
from domain.limits import (
    LEAST_REPLY,
    CallEstimate,
    LoopVerdict,
    Next,
    Reserved,
    SideDecision,
    SideVerdict,
    TreeBudget,
    call_digest,
    decide_next,
    extend_trail,
    find_anomalies,
    find_reached_limit,
    grant,
    judge_response,
    judge_trail,
)
from domain.sessions.session import (
    Effect,
    Limits,
    ModelReply,
    Reason,
    StopReason,
    ToolCall,
    ToolOutcome,
    Usage,
)

COUNTS = st.integers(0, 200)
COSTS = st.none() | st.floats(0, 10, allow_nan=False)
LIMITS = st.builds(
    Limits, steps=st.integers(1, 100), tokens=st.none() | st.integers(1, 300), cost_usd=st.none() | st.floats(0.01, 10)
)
USAGES = st.builds(
    Usage,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cache_read_tokens=COUNTS,
    cache_write_tokens=COUNTS,
    cost_usd=COSTS,
)


@given(LIMITS, COUNTS, USAGES)
def test_a_step_is_allowed_exactly_while_nothing_is_used_up(limits: Limits, steps: int, usage: Usage) -> None:
    spent = {
        Reason.STEP_LIMIT: steps >= limits.steps,
        Reason.TOKEN_BUDGET: limits.tokens is not None and usage.tokens >= limits.tokens,
        Reason.COST_BUDGET: limits.cost_usd is not None
        and (usage.cost_usd is None or usage.cost_usd >= limits.cost_usd),
    }
    found = find_reached_limit(limits, steps, usage)
    assert (found is None) == (not any(spent.values()))
    assert found is None or spent[found]


CALL = ToolCall(index=0, name="bash", activity="tool.bash", effect=Effect.ONCE, timeout_s=1)


def reply(stop_reason: StopReason, calls: int = 0) -> ModelReply:
    return ModelReply(head="h", stop_reason=stop_reason, calls=[CALL] * calls, usage=Usage())


@pytest.mark.parametrize(
    ("stop_reason", "expected"),
    [
        (StopReason.ANSWERED, Next.STOP),
        (StopReason.CUT_OFF, Next.ASK_AGAIN),
        (StopReason.PAUSED, Next.ASK_AGAIN),
        (StopReason.CONTEXT_FULL, Next.COMPACT),
        (StopReason.DECLINED, Next.STOP),
    ],
)
def test_reply_without_calls_ends_or_continues_by_its_stop_reason(stop_reason: StopReason, expected: Next) -> None:
    assert decide_next(reply(stop_reason)).next is expected


@given(st.sampled_from(StopReason), st.integers(1, 5))
def test_calls_are_run_before_anything_but_a_refusal(stop_reason: StopReason, calls: int) -> None:
    assert decide_next(reply(stop_reason, calls)).next is (
        Next.STOP if stop_reason is StopReason.DECLINED else Next.ACT
    )


FAIL, STOP, STATUS = Binding(name="fail"), Binding(name="approve"), Binding(name="status")
SIDE = Side(prompt="p", session_fail=FAIL, session_stop=STOP, session_status=STATUS, stop_tool="done", max_steps=3)
PATIENT = SIDE.model_copy(update={"stop_on_response": False})


@pytest.mark.parametrize(
    ("side", "calls", "steps", "turns", "expected"),
    [
        # bindings that end the session come first, and a failure beats a success
        (SIDE, ["approve", "fail"], 1, 0, (SideVerdict.FAIL_SESSION, 1)),
        (SIDE, ["read", "approve"], 1, 0, (SideVerdict.STOP_SESSION, 1)),
        (SIDE, ["done", "approve"], 1, 0, (SideVerdict.STOP_SESSION, 1)),
        # also at a limit
        (SIDE, ["fail"], 3, 9, (SideVerdict.FAIL_SESSION, 0)),
        # a status binding ends nothing
        (SIDE, ["status"], 1, 0, (SideVerdict.ACT, None)),
        # then the stop tool, also beside other calls
        (SIDE, ["done"], 1, 0, (SideVerdict.END_TURN, 0)),
        (SIDE, ["read", "done"], 1, 0, (SideVerdict.END_TURN, 1)),
        # then a response without calls
        (SIDE, [], 1, 0, (SideVerdict.END_TURN, None)),
        (PATIENT, [], 1, 0, (SideVerdict.ACT, None)),
        # then the limits
        (SIDE, ["read"], 3, 0, (SideVerdict.STEP_LIMIT, None)),
        (PATIENT, [], 3, 0, (SideVerdict.STEP_LIMIT, None)),
        (SIDE, [], 1, 9, (SideVerdict.TURN_LIMIT, None)),
        (SIDE, ["done"], 1, 9, (SideVerdict.TURN_LIMIT, 0)),
    ],
)
@pytest.mark.proves("S4-08")
def test_stop_rules_are_judged_in_the_order_of_the_standard(
    side: Side, calls: list[str], steps: int, turns: int, expected: tuple[SideVerdict, int | None]
) -> None:
    decision = judge_response(side, calls, steps=steps, turns=turns, max_session_turns=10)
    assert decision == SideDecision(*expected)


SOME = st.integers(0, 20_000)


@given(st.integers(1, 50_000), SOME, SOME, st.integers(0, 5), st.integers(1, 8_192), st.integers(0, 20_000))
def test_concurrent_calls_never_reserve_more_than_the_budget(
    most: int, used: int, held: int, calls: int, output: int, entered: int
) -> None:
    others = Reserved(calls=calls, tokens=held if calls else 0)
    budget = TreeBudget(max_tokens=most, tokens=used)
    found = grant(budget, others, CallEstimate(input_tokens=entered, output_tokens=output))
    if found.given:
        assert used + others.tokens + entered + found.output_tokens <= most
    elif found.wait:
        assert calls and not found.spent
        assert grant(budget, Reserved(), CallEstimate(input_tokens=entered, output_tokens=output)).given
    else:
        assert found.spent == "tokens"
        assert used + entered + min(LEAST_REPLY, output) > most


def test_money_and_steps_count_too() -> None:
    estimate = CallEstimate(input_tokens=10, output_tokens=1_000, input_usd=0.10, output_usd=1.00)
    assert grant(TreeBudget(max_cost_usd=0.60), Reserved(), estimate).output_tokens == 500
    assert grant(TreeBudget(max_cost_usd=0.60, cost_usd=0.50), Reserved(), estimate).spent == "money"
    assert grant(TreeBudget(max_cost_usd=2.00), Reserved(calls=1, cost_usd=1.50), estimate).wait
    for unknown in ("input_usd", "output_usd"):
        unpriced = estimate.model_copy(update={unknown: None})
        assert grant(TreeBudget(max_cost_usd=2.00), Reserved(), unpriced).spent == "money"
        assert grant(TreeBudget(max_tokens=2_000), Reserved(), unpriced).output_tokens == 1_000
    assert grant(TreeBudget(max_steps=3, steps=3), Reserved(), estimate).spent == "steps"
    assert grant(TreeBudget(max_steps=3, steps=2), Reserved(calls=1), estimate).wait
    assert grant(TreeBudget(), Reserved(calls=9), estimate).output_tokens == 1_000


WARNING, LIMIT = 4, 8


def outcome(tool: str, given: object = None, text: str = "same", state: str = "ok") -> ToolOutcome:
    return ToolOutcome(index=0, name=tool, digest=call_digest(tool, given, state, text))


def walk(*steps: list[ToolOutcome], seconds: float = 0.1) -> list[LoopVerdict]:
    """The verdict of the loop detection after each step."""
    trail: list[str] = []
    found = []
    for outcomes in steps:
        trail = extend_trail(trail, outcomes, seconds, LIMIT)
        found.append(judge_trail(trail, WARNING, LIMIT))
    return found


def test_repetition_in_any_order_is_a_loop() -> None:
    order = [0, 1, 2, 3, 4] + [3, 1, 4, 0, 2, 2, 0, 4, 1, 3, 0, 3, 1, 2, 4, 2, 1, 0, 4, 3, 4, 0, 1, 3]
    found = walk(*[[outcome("read_file", number)] for number in order])
    assert found[-1] is LoopVerdict.BREAK and LoopVerdict.WARN in found


def kinds(failed: int = 0, denied: int = 0, seconds: float = 0, **usage: float | None) -> list[str]:
    return [one.kind for one in find_anomalies(Usage.model_validate(usage), failed, denied, seconds)]


def test_each_figure_has_its_threshold() -> None:
    assert kinds(failed=5, tool_invocations=10) == ["error_rate"]
    assert kinds(failed=9, tool_invocations=9) == []  # too few to judge
    assert kinds(seconds=120, cost_usd=2.5) == ["spend_rate"]
    assert kinds(denied=5) == ["denied_calls"]
    assert kinds(failed=10, denied=9, seconds=60, tool_invocations=10, cost_usd=9) == [
        "error_rate",
        "spend_rate",
        "denied_calls",
    ]
