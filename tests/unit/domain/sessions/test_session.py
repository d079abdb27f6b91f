"""Sessions: every reason has one status, and usage adds up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.sessions.session import LIMIT_REASONS, TERMINAL, Reason, Status, Usage

STATUS_OF = {
    Reason.GOAL_REACHED: Status.COMPLETED,
    Reason.CALLER_CANCEL: Status.CANCELLED,
    Reason.INTERRUPTED: Status.CANCELLED,
    Reason.TERMINATED: Status.CANCELLED,
    Reason.INPUT_TIMEOUT: Status.CANCELLED,
    Reason.ERROR: Status.FAILED,
    Reason.TTL: Status.FAILED,
    Reason.STEP_LIMIT: Status.FAILED,
    Reason.TURN_LIMIT: Status.FAILED,
    Reason.TOKEN_BUDGET: Status.FAILED,
    Reason.COST_BUDGET: Status.FAILED,
    Reason.TOOL_LIMIT: Status.FAILED,
    Reason.TREE_BUDGET: Status.FAILED,
    Reason.LOOP_DETECTED: Status.FAILED,
    Reason.ACCEPTANCE_FAILED: Status.FAILED,
    Reason.CONSTRAINT_VIOLATED: Status.FAILED,
    Reason.NEEDS_INPUT: Status.FAILED,
    Reason.POLICY_DENIED: Status.FAILED,
    Reason.LOST: Status.FAILED,
}
COUNTS = st.integers(0, 10**9)
USAGES = st.builds(
    Usage,
    llm_calls=COUNTS,
    tool_invocations=COUNTS,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cache_read_tokens=COUNTS,
    cache_write_tokens=COUNTS,
    cost_usd=st.none() | st.integers(0, 10**6).map(lambda millionths: millionths / 10**6),
)


def test_the_table_of_reasons_is_complete() -> None:
    assert set(STATUS_OF) == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_has_its_status(reason: Reason) -> None:
    assert reason.status is STATUS_OF[reason]
    assert reason.status.terminal


def test_half_of_the_states_are_final_and_limits_are_failures() -> None:
    assert {status for status in Status if status.terminal} == TERMINAL
    assert {Status.COMPLETED, Status.FAILED, Status.CANCELLED} == TERMINAL
    assert {reason.status for reason in LIMIT_REASONS} == {Status.FAILED}


@given(USAGES, USAGES, USAGES)
def test_usage_adds_up_in_any_order(a: Usage, b: Usage, c: Usage) -> None:
    assert a.plus(b) == b.plus(a)
    assert a.plus(b).plus(c) == a.plus(b.plus(c))
    assert a.plus(Usage()) == a
    assert a.plus(b).tokens == a.tokens + b.tokens
    assert a.tokens == a.input_tokens + a.output_tokens + a.cache_read_tokens + a.cache_write_tokens
    assert a.plus(b).llm_calls == a.llm_calls + b.llm_calls
    assert a.plus(b).tool_invocations == a.tool_invocations + b.tool_invocations


@given(USAGES, USAGES)
def test_a_cost_that_is_unknown_once_stays_unknown(a: Usage, b: Usage) -> None:
    assert (a.plus(b).cost_usd is None) == (a.cost_usd is None or b.cost_usd is None)


@given(USAGES, USAGES)
def test_usage_since_a_moment_is_the_difference(a: Usage, b: Usage) -> None:
    since = a.plus(b).minus(a)
    assert since.tokens == b.tokens and since.llm_calls == b.llm_calls
    assert (since.cost_usd is None) == (a.cost_usd is None or b.cost_usd is None)
