"""Stop rules: what happens after a reply, and which rule takes precedence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.limits import Next, decide_next
from domain.sessions.session import Effect, ModelReply, Reason, StopReason, ToolCall, Usage

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


@given(st.sampled_from(StopReason), st.integers(0, 2))
def test_stop_has_a_reason_and_an_error_has_a_message(stop_reason: StopReason, calls: int) -> None:
    decision = decide_next(reply(stop_reason, calls))
    assert (decision.reason is not None) == (decision.next is Next.STOP)
    assert (decision.reason is Reason.ERROR) == (decision.error is not None) == (stop_reason is StopReason.DECLINED)
