"""Stop rules: what follows from a reply, and which rule goes first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.limits.stop_rules import Next, decide
from domain.sessions.session import Reason, Usage
from domain.sessions.step import Effect, ModelReply, ToolCall

CALL = ToolCall(index=0, name="bash", activity="tool.bash", effect=Effect.ONCE, timeout_s=1)
REASONS = [
    *("end_turn", "tool_use", "max_tokens", "stop_sequence", "pause_turn", "refusal"),
    *("model_context_window_exceeded", "something_new"),
]


def reply(stop_reason: str, calls: int = 0) -> ModelReply:
    return ModelReply(head="h", stop_reason=stop_reason, calls=[CALL] * calls, usage=Usage())


@pytest.mark.parametrize(
    ("stop_reason", "expected"),
    [
        ("end_turn", Next.STOP),
        ("stop_sequence", Next.STOP),
        ("something_new", Next.STOP),
        ("max_tokens", Next.GO_ON),
        ("pause_turn", Next.GO_ON),
        ("model_context_window_exceeded", Next.COMPACT),
        ("refusal", Next.STOP),
    ],
)
def test_reply_without_calls_ends_or_continues_by_its_stop_reason(stop_reason: str, expected: Next) -> None:
    assert decide(reply(stop_reason)).next is expected


@given(st.sampled_from(REASONS), st.integers(1, 5))
def test_calls_are_run_before_anything_but_a_refusal(stop_reason: str, calls: int) -> None:
    assert decide(reply(stop_reason, calls)).next is (Next.STOP if stop_reason == "refusal" else Next.ACT)


@given(st.sampled_from(REASONS), st.integers(0, 2))
def test_stop_has_a_reason_and_an_error_has_a_message(stop_reason: str, calls: int) -> None:
    decision = decide(reply(stop_reason, calls))
    assert (decision.reason is not None) == (decision.next is Next.STOP)
    assert (decision.reason is Reason.ERROR) == (decision.error is not None) == (stop_reason == "refusal")
