"""Budgets: a reservation never exceeds what is left, and no call waits for a spent budget."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.limits import LEAST_REPLY, CallEstimate, Reserved, Share, TreeBudget, budget_note, grant, shares, time_of
from domain.sessions.session import Limits, Usage

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
    assert (
        grant(TreeBudget(max_cost_usd=2.00), Reserved(), estimate.model_copy(update={"output_usd": None})).spent
        == "money"
    )
    assert grant(TreeBudget(max_steps=3, steps=3), Reserved(), estimate).spent == "steps"
    assert grant(TreeBudget(max_steps=3, steps=2), Reserved(calls=1), estimate).wait
    assert grant(TreeBudget(), Reserved(calls=9), estimate).output_tokens == 1_000


@pytest.mark.parametrize(
    ("used", "lacking"),
    [
        ({}, None),
        ({"sessions": 2}, "sessions"),
        ({"tokens": 10}, "tokens"),
        ({"tool_calls": 5}, None),
        ({"deadline": NOW - timedelta(seconds=1)}, "time"),
    ],
)
def test_another_session_needs_something_left(used: dict[str, int], lacking: str | None) -> None:
    budget = TreeBudget.model_validate({"max_sessions": 2, "max_tokens": 10, "max_tool_calls": 5, **used})
    assert budget.spent(NOW) == lacking


def test_rest_of_a_budget_is_described_and_a_low_one_is_noticed() -> None:
    limits = Limits(steps=10, tokens=1_000, cost_usd=0.5, tool_calls=5, ttl_ms=60_000)
    used = Usage(input_tokens=900, tool_invocations=1, cost_usd=0.1)
    own = shares(limits, 9, used, Share(kind="ttl", limit=60_000, used=30_000))
    assert budget_note(own, [Share(kind="sessions", limit=3, used=1)]) == (
        "<budget>Left to this session: 1 step, 100 tokens, $0.4000, 4 tool calls, 30 seconds. "
        "Left to you and all subagents together: 2 sessions.</budget>"
    )
    assert [one.kind for one in own if one.low(20)] == ["steps", "tokens"]
    assert [one.kind for one in shares(limits, 0, Usage(cost_usd=None)) if one.low(20)] == ["cost_usd"]


@pytest.mark.parametrize(
    ("seconds", "limit", "left"),
    [(60, 60_000, 50_000), (59.5, 60_000, 49_500), (20, 20_000, 10_000), (90, 60_000, 60_000)],
)
def test_the_time_of_a_session_may_be_what_its_tree_had_left(seconds: float, limit: float, left: float) -> None:
    """A session that was stored just after its deadline was set has its own time; otherwise the deadline decides."""
    limits = Limits(ttl_ms=60_000)
    time = time_of(limits, NOW, NOW + timedelta(seconds=seconds), NOW + timedelta(seconds=10))
    assert (time.limit, time.left) == (limit, left)
