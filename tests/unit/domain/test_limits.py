"""Limits: what ends a session or a turn of a side, what it may still spend, and how loops and anomalies are noticed."""

from datetime import UTC, datetime, timedelta
from itertools import cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.agents.definition import Binding, Side
from domain.limits import (
    LEAST_REPLY,
    WAITED_SECONDS,
    CallEstimate,
    LoopVerdict,
    Next,
    Raise,
    Reserved,
    Share,
    SideDecision,
    SideVerdict,
    TreeBudget,
    budget_note,
    call_digest,
    count_repetitions,
    decide_next,
    extend_trail,
    find_anomalies,
    find_reached_limit,
    grant,
    judge_response,
    judge_trail,
    shares,
    time_of,
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
BARE = Side(prompt="p")


@pytest.mark.parametrize(
    ("side", "calls", "steps", "turns", "expected"),
    [
        # bindings that end the session come first, and a failure beats a success
        (SIDE, ["approve"], 1, 0, (SideVerdict.STOP_SESSION, 0)),
        (SIDE, ["fail"], 1, 0, (SideVerdict.FAIL_SESSION, 0)),
        (SIDE, ["approve", "fail"], 1, 0, (SideVerdict.FAIL_SESSION, 1)),
        (SIDE, ["read", "approve"], 1, 0, (SideVerdict.STOP_SESSION, 1)),
        (SIDE, ["done", "approve"], 1, 0, (SideVerdict.STOP_SESSION, 1)),
        # also at a limit
        (SIDE, ["fail"], 3, 9, (SideVerdict.FAIL_SESSION, 0)),
        (SIDE, ["approve"], 3, 9, (SideVerdict.STOP_SESSION, 0)),
        # a status binding ends nothing
        (SIDE, ["status"], 1, 0, (SideVerdict.ACT, None)),
        # then the stop tool, also beside other calls
        (SIDE, ["done"], 1, 0, (SideVerdict.END_TURN, 0)),
        (SIDE, ["read", "done"], 1, 0, (SideVerdict.END_TURN, 1)),
        (SIDE, ["done"], 3, 0, (SideVerdict.END_TURN, 0)),
        # then a response without calls
        (SIDE, [], 1, 0, (SideVerdict.END_TURN, None)),
        (SIDE, [], 3, 0, (SideVerdict.END_TURN, None)),
        (PATIENT, [], 1, 0, (SideVerdict.ACT, None)),
        (BARE, ["read"], 1, 0, (SideVerdict.ACT, None)),
        # then the limits
        (SIDE, ["read"], 3, 0, (SideVerdict.STEP_LIMIT, None)),
        (PATIENT, [], 3, 0, (SideVerdict.STEP_LIMIT, None)),
        (SIDE, ["read"], 2, 9, (SideVerdict.ACT, None)),
        (SIDE, [], 1, 9, (SideVerdict.TURN_LIMIT, None)),
        (SIDE, ["done"], 1, 9, (SideVerdict.TURN_LIMIT, 0)),
        (SIDE, [], 1, 8, (SideVerdict.END_TURN, None)),
    ],
)
@pytest.mark.proves("S4-08")
def test_stop_rules_are_judged_in_the_order_of_the_standard(
    side: Side, calls: list[str], steps: int, turns: int, expected: tuple[SideVerdict, int | None]
) -> None:
    decision = judge_response(side, calls, steps=steps, turns=turns, max_session_turns=10)
    assert decision == SideDecision(*expected)


NOW = datetime(2026, 1, 1, tzinfo=UTC)
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


def test_rest_of_a_budget_is_described_and_a_low_one_is_noticed() -> None:
    limits = Limits(steps=10, tokens=1_000, cost_usd=0.5, tool_calls=5, ttl_ms=60_000)
    used = Usage(input_tokens=900, tool_invocations=1, cost_usd=0.1)
    own = shares(limits, 9, used, Share(kind="ttl", limit=60_000, used=30_000))
    assert budget_note(own, [Share(kind="tool_calls", limit=3, used=1)]) == (
        "<budget>Left to this session: 1 step, 100 tokens, $0.4000, 4 tool calls, 30 seconds. "
        "Left to you and all subagents together: 2 tool calls.</budget>"
    )
    assert [one.kind for one in own if one.low] == ["steps", "tokens"]
    assert [one.kind for one in shares(limits, 0, Usage(cost_usd=None)) if one.low] == ["cost_usd"]


FIELDS = ("ttl_ms", "steps", "tokens", "cost_usd", "tool_calls")


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize(
    ("wanted", "before", "changed"), [(11, 10, True), (10, 10, False), (9, 10, False), (11, None, False)]
)
def test_a_limit_is_only_raised(kind: str, wanted: int, before: int | None, changed: bool) -> None:
    """An equal or smaller one changes nothing, and where there is no limit none is set."""
    if kind in FIELDS and not (before is None and kind in ("ttl_ms", "steps")):  # these two always have one
        limits = Limits().model_copy(update={kind: before})
        given = Raise.model_validate({kind: wanted})
        assert [(one.before, one.limit) for one in given.changes(limits)] == ([(before, wanted)] if changed else [])
        assert getattr(given.limits(limits), kind) == (wanted if changed else before)
        assert given.limits(limits).raised is changed
    if kind != "ttl_ms":
        tree = TreeBudget.model_validate({f"max_{kind}": before})
        found = [(one.budget, one.limit) for one in Raise(tree={kind: wanted}).tree_changes(tree)]
        assert found == ([(kind, wanted)] if changed else [])


@pytest.mark.parametrize(
    ("seconds", "limit", "left"),
    [(60, 60_000, 50_000), (59.5, 60_000, 49_500), (20, 20_000, 10_000), (90, 60_000, 60_000)],
)
def test_the_time_of_a_session_may_be_what_its_tree_had_left(seconds: float, limit: float, left: float) -> None:
    """A session that was stored just after its deadline was set has its own time; otherwise the deadline decides."""
    limits = Limits(ttl_ms=60_000)
    time = time_of(limits, NOW, NOW + timedelta(seconds=seconds), NOW + timedelta(seconds=10))
    assert (time.limit, time.left) == (limit, left)


WARNING, LIMIT = 4, 8
TOKENS = st.lists(st.sampled_from("abcdef"), max_size=60)


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


def test_the_same_call_with_the_same_result_is_warned_then_stopped() -> None:
    found = walk(*[[outcome("bash", "ls")]] * 10)
    assert found[:3] == [LoopVerdict.FINE] * 3 and found[3] is LoopVerdict.WARN
    assert found[4:7] == [LoopVerdict.FINE] * 3 and found[7] is LoopVerdict.BREAK


@pytest.mark.parametrize("period", [2, 3])
def test_steps_that_alternate_are_a_loop(period: int) -> None:
    steps = [[outcome("bash", number)] for number in range(period)]
    found = walk(*islice(cycle(steps), LIMIT * period))
    assert found.count(LoopVerdict.WARN) == 1
    assert found[-1] is LoopVerdict.BREAK and LoopVerdict.BREAK not in found[:-1]


def test_repetition_in_any_order_is_a_loop() -> None:
    order = [0, 1, 2, 3, 4] + [3, 1, 4, 0, 2, 2, 0, 4, 1, 3, 0, 3, 1, 2, 4, 2, 1, 0, 4, 3, 4, 0, 1, 3]
    found = walk(*[[outcome("read_file", number)] for number in order])
    assert found[-1] is LoopVerdict.BREAK and LoopVerdict.WARN in found


def test_polling_is_no_loop() -> None:
    changing = [[outcome("bash", "status", f"{number} of 40 done")] for number in range(40)]
    waiting = [[outcome("bash", "sleep 30; status", "pending")]] * 40
    polling = [[ToolOutcome(index=0, name="gather")]] * 40  # no digest
    assert set(walk(*changing)) == {LoopVerdict.FINE}
    assert set(walk(*waiting, seconds=WAITED_SECONDS)) == {LoopVerdict.FINE}
    assert set(walk(*polling)) == {LoopVerdict.FINE}


@given(TOKENS)
def test_the_count_never_jumps_and_the_trail_stays_short(tokens: list[str]) -> None:
    trail: list[str] = []
    before = 0
    for token in tokens:
        trail = extend_trail(trail, [outcome("x", token)], 0, LIMIT)
        assert count_repetitions(trail) <= before + 1
        before = count_repetitions(trail)
        assert len(trail) <= 6 * LIMIT


def kinds(failed: int = 0, denied: int = 0, seconds: float = 0, **usage: float | None) -> list[str]:
    return [one.kind for one in find_anomalies(Usage.model_validate(usage), failed, denied, seconds)]


def test_each_figure_has_its_threshold() -> None:
    assert kinds(failed=5, tool_invocations=10) == ["error_rate"]
    assert kinds(failed=4, tool_invocations=10) == []
    assert kinds(failed=9, tool_invocations=9) == []  # too few to judge
    assert kinds(seconds=120, cost_usd=2.5) == ["spend_rate"]
    assert kinds(seconds=180, cost_usd=2.5) == []
    assert kinds(seconds=120, cost_usd=2.0) == ["spend_rate"]  # a threshold that is reached counts
    assert kinds(seconds=120, cost_usd=None) == []
    assert kinds(seconds=1, cost_usd=0.9) == []  # less than a minute counts as a whole minute
    assert kinds(denied=5) == ["denied_calls"]
    assert kinds(failed=10, denied=9, seconds=60, tool_invocations=10, cost_usd=9) == [
        "error_rate",
        "spend_rate",
        "denied_calls",
    ]
