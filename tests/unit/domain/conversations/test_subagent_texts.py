"""Results of subagents as the delegation tools return them."""

import pytest

from domain.conversations.mailbox import Outcome, subagent_message
from domain.conversations.subagent_texts import result
from domain.sessions.session import Reason, Status


@pytest.mark.proves("S3-18")
@pytest.mark.parametrize(
    ("status", "error_type", "name"),
    [
        (Status.FAILED, "authentication_error", "ProviderAuthError"),
        (Status.FAILED, "permission_error", "ProviderAuthError"),
        (Status.FAILED, "billing_error", "ProviderAuthError"),
        (Status.FAILED, "ContextTooLong", "MessageOutputLengthError"),
        (Status.FAILED, "max_tokens", "MessageOutputLengthError"),
        (Status.FAILED, "invalid_request_error", "ApiError"),
        (Status.FAILED, "overloaded_error", "ApiError"),
        (Status.FAILED, "needs_input", "UnknownError"),
        (Status.FAILED, None, "UnknownError"),
        (Status.CANCELLED, None, "MessageAbortedError"),
        (Status.CANCELLED, "authentication_error", "MessageAbortedError"),
    ],
)
def test_every_error_has_one_of_five_names(status: Status, error_type: str | None, name: str) -> None:
    outcome = Outcome(session_id="s1", name="n", status=status, reason=Reason.ERROR, error="No.", output="So far.")
    assert result(outcome, error_type) == (
        f"status: error\ntask_id: s1\nerror_type: {name}\n\nNo.\n\nUntil then it said:\nSo far."
    )


@pytest.mark.parametrize(
    ("status", "output", "text"),
    [
        (Status.COMPLETED, "Done.", "returned the following result:\n\nDone."),
        (Status.COMPLETED, None, "returned the following result:\n\n(no output)"),
        (Status.FAILED, "Half.", "reported a failure:\n\nNo.\n\nUntil then it said:\nHalf."),
        (Status.CANCELLED, "Half.", "reported a failure:\n\nNo.\n\nUntil then it said:\nHalf."),
        (Status.CANCELLED, None, "reported a failure:\n\nNo."),
    ],
)
def test_subagent_that_is_a_tool_has_a_result_only_if_it_completed(
    status: Status, output: str | None, text: str
) -> None:
    outcome = Outcome(session_id="s1", name="n", status=status, reason=Reason.ERROR, error="No.", output=output)
    assert subagent_message(outcome, "t1") == f"Subagent (reference: t1) has {text}"
