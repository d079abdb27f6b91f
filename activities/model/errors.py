"""What a failed model call means: retry later, compact, try another model, or give up with a readable sentence."""

from dataclasses import dataclass

import anthropic
import httpx2

from domain import wire

LONGEST_WAIT = 300.0  # seconds; a longer retry-after is a reason to ask again, not to sleep for days


@dataclass(frozen=True)
class ModelFailure:
    type: str
    message: str
    retryable: bool
    wait: float | None = None  # the server's own retry-after


class IncompleteStream(Exception):
    """The stream ended without a stop reason: what arrived is a part, not an answer."""


# by the API's own error type, because an error inside a running stream comes with status 200 and no class of its own
_RETRYABLE = {"rate_limit_error", "overloaded_error", "api_error", "timeout_error", "conflict_error"}
_BY_STATUS = {400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
              404: "not_found_error", 408: "timeout_error", 409: "conflict_error", 413: "request_too_large",
              422: "invalid_request_error", 429: "rate_limit_error", 529: "overloaded_error"}  # fmt: skip
# another model may still answer when this one is unknown or not permitted
UNAVAILABLE = {"not_found_error", "permission_error"}


def classify(error: BaseException) -> ModelFailure:
    if isinstance(error, anthropic.APIStatusError):
        return _classify_status(error)
    if isinstance(error, IncompleteStream):
        return ModelFailure("incomplete_stream", str(error), retryable=True)
    if isinstance(error, anthropic.APITimeoutError):
        return ModelFailure("timeout_error", "The model did not answer in time.", retryable=True)
    if isinstance(error, anthropic.APIConnectionError | httpx2.TransportError):
        return ModelFailure("connection_error", "The connection to the model was lost.", retryable=True)
    if isinstance(error, anthropic.APIResponseValidationError | ValueError):
        return ModelFailure("malformed_reply", "The model's reply could not be read.", retryable=True)
    raise error


def _classify_status(error: anthropic.APIStatusError) -> ModelFailure:
    kind = error.type or _BY_STATUS.get(error.status_code, "api_error" if error.status_code >= 500 else "unknown_error")
    message = error.api_message or f"The model API answered {error.status_code}."
    if kind == "request_too_large" or (kind == "invalid_request_error" and "prompt is too long" in message):
        return ModelFailure(wire.CONTEXT_TOO_LONG, message, retryable=False)
    retryable = kind in _RETRYABLE or error.status_code >= 500
    advice = error.response.headers.get("x-should-retry")
    if advice in ("true", "false"):
        retryable = advice == "true"
    return ModelFailure(kind, message, retryable, _retry_after(error.response.headers.get("retry-after")))


def _retry_after(value: str | None) -> float | None:
    try:
        return min(max(float(value or ""), 0.0), LONGEST_WAIT)
    except ValueError:
        return None


def backoff(attempt: int, failure: ModelFailure) -> float:
    """Seconds until the next attempt: what the server asked for, else 1, 2, 4 … up to 60."""
    if failure.wait is not None:
        return failure.wait
    return float(min(2 ** min(attempt - 1, 6), 60))
