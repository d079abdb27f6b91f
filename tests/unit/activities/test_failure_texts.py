"""Temporal's history contains only our own text for a failure, whatever caused it."""

from typing import Any, cast

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities.attempt import OwnFailureTexts
from store.agents import UnreadableAgent

QUOTED = "row (42, sk-of-a-customer)"


def raised(error: Exception, cause: Exception | None = None) -> Failure:
    class Fails(ActivityInboundInterceptor):
        def __init__(self) -> None:
            pass

        async def execute_activity(self, input: ExecuteActivityInput) -> Any:
            try:
                raise ValueError(QUOTED)
            except ValueError:
                raise error from cause  # the error also has a context

    failure = Failure()
    converter = DataConverter.default
    coroutine = OwnFailureTexts().intercept_activity(Fails()).execute_activity(cast(Any, None))
    try:
        coroutine.send(None)
    except Exception as seen:
        converter.failure_converter.to_failure(seen, converter.payload_converter, failure)
    return failure


@pytest.mark.parametrize("cause", [None, ValueError(QUOTED)])
def test_own_failure_keeps_its_text_without_causes(cause: Exception | None) -> None:
    failure = raised(ApplicationError("The model is away.", type="away", non_retryable=True), cause)
    info = failure.application_failure_info
    assert (failure.message, info.type, info.non_retryable) == ("The model is away.", "away", True)
    assert not failure.HasField("cause") and QUOTED not in str(failure)


def test_an_agent_that_cannot_be_read_is_not_tried_again() -> None:
    failure = raised(UnreadableAgent("put it again"))
    assert (failure.message, failure.application_failure_info.non_retryable) == ("put it again", True)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError(QUOTED), "KeyError; the worker's log has the details."),
        (ConnectionRefusedError(111, "refused", QUOTED), "ConnectionRefusedError: refused; the worker's log has the"),
    ],
)
def test_unexpected_failure_has_its_kind_only(error: Exception, text: str) -> None:
    failure = raised(error)
    assert failure.message.startswith(text) and failure.application_failure_info.type == type(error).__name__
    assert not failure.application_failure_info.non_retryable and QUOTED not in str(failure)
