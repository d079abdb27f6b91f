"""Limits: which of them forbids another step; each has a text for the agent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.limits import find_reached_limit, summary_request
from domain.sessions.session import LIMIT_REASONS, Limits, Reason, Usage

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


def test_an_unknown_cost_counts_as_spent_only_under_a_cost_budget() -> None:
    unknown = Usage(cost_usd=None)
    assert find_reached_limit(Limits(cost_usd=5), 0, unknown) is Reason.COST_BUDGET
    assert find_reached_limit(Limits(), 0, unknown) is None


@pytest.mark.parametrize("reason", sorted(LIMIT_REASONS))
def test_every_limit_has_a_text_for_the_last_reply(reason: Reason) -> None:
    assert "summary" in summary_request(reason) and "no more tools" in summary_request(reason)
