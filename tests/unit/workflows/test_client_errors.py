"""The meaning of Temporal's errors for the caller."""

import asyncpg
import pytest
from temporalio.service import RPCError, RPCStatusCode

from api.http.problems import respond
from workflows.client import is_away, is_not_yet, is_over


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (RPCStatusCode.UNAVAILABLE, is_away),
        (RPCStatusCode.UNKNOWN, is_away),
        (RPCStatusCode.INTERNAL, is_away),
        (RPCStatusCode.RESOURCE_EXHAUSTED, is_not_yet),
        (RPCStatusCode.NOT_FOUND, is_not_yet),
        (RPCStatusCode.NOT_FOUND, is_over),
    ],
)
def test_a_broken_connection_is_no_mistake_of_the_callers(status: RPCStatusCode, meaning: object) -> None:
    error = RPCError("x", status, b"")
    assert {rule for rule in (is_away, is_not_yet, is_over) if rule(error)} >= {meaning}
    assert not (is_away(error) and is_over(error))


@pytest.mark.parametrize(
    "kind",
    [asyncpg.DeadlockDetectedError, asyncpg.QueryCanceledError, asyncpg.InvalidCachedStatementError, TimeoutError],
)
def test_transient_error_is_503(kind: type[Exception]) -> None:
    answer = respond(kind("x"), "id")
    assert answer.status_code == 503 and answer.headers["retry-after"]


def test_unforeseen_error_is_500() -> None:
    assert respond(asyncpg.UniqueViolationError("x"), "id").status_code == 500
