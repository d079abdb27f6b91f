"""Classifies failed model calls: retry later, compact, try another model, or give up with a readable sentence."""

from dataclasses import dataclass
from urllib.parse import urlsplit

import anthropic
import httpx2
from pydantic_core import from_json

from domain import wire
from domain.redaction import shortened

MOST_SAID = 500  # characters of the endpoint's own message, which may quote the request
MOST_KIND = 64  # characters of its type of error, which is stored in histories
UNKNOWN = "unknown_error"
LONGEST_WAIT = 300.0  # seconds; with a longer retry-after we try earlier instead of sleeping for days


@dataclass(frozen=True)
class ModelFailure:
    type: str
    message: str
    retryable: bool
    wait: float | None = None  # the server's own retry-after
    any_model: bool = False  # other models would fail in the same way


class IncompleteStream(Exception):
    """The stream ended without a stop reason, so the reply is incomplete."""


class StreamFailed(Exception):
    """An error of the API inside a stream, whose response had begun with status 200. `data` should be an object with
    its type and message, but gateways send other things too."""

    def __init__(self, data: bytes, response: httpx2.Response) -> None:
        try:
            error = from_json(data)["error"]
            self.kind, self.said = str(error.get("type") or UNKNOWN)[:MOST_KIND], str(error.get("message") or "")
        except (AttributeError, KeyError, TypeError, ValueError):
            self.kind, self.said = UNKNOWN, data.decode(errors="replace")
        super().__init__(self.said)
        self.response = response
        self.request = response.request


# By the API's own error type: an error inside a running stream has status 200.
_RETRYABLE = {"rate_limit_error", "overloaded_error", "api_error", "timeout_error", "conflict_error"}
_BY_STATUS = {400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
              404: "not_found_error", 408: "timeout_error", 409: "conflict_error", 413: "request_too_large",
              422: "invalid_request_error", 429: "rate_limit_error", 529: "overloaded_error"}  # fmt: skip
# if this model is unknown or not permitted, another one may still answer
UNAVAILABLE = {"not_found_error", "permission_error"}
BAD_KEY = "authentication_error"


# advice for people
_ADVICE = {
    "authentication_error": "Set a valid ANTHROPIC_API_KEY and start again.",
    "billing_error": "The account of this key needs credit.",
    "permission_error": "Use a key that may use this model, or another model.",
    "not_found_error": "Check the model's name and ANTHROPIC_BASE_URL.",
    "connection_error": "Check ANTHROPIC_BASE_URL and the network.",
}


def classify(error: BaseException, model: str) -> ModelFailure:
    """Classify the failure of a call to this model."""
    if isinstance(error, anthropic.APIStatusError):
        return _classify_status(error, model)
    if isinstance(error, StreamFailed):
        said = error.said or "The model API reported an error."
        return _classify_kind(error.kind, said, f"{error.kind}; ", error, error.response.headers, model)
    if isinstance(error, IncompleteStream):
        return ModelFailure("incomplete_stream", str(error), retryable=True)
    if isinstance(error, anthropic.APIResponseValidationError | httpx2.DecodingError | ValueError):
        return ModelFailure("malformed_reply", "The model's reply could not be read.", retryable=True)
    if isinstance(error, anthropic.APIConnectionError | httpx2.TransportError):
        return _classify_connection(error, model)
    raise error


def _classify_connection(error: anthropic.APIConnectionError | httpx2.TransportError, model: str) -> ModelFailure:
    cause = error.__cause__ if isinstance(error, anthropic.APIConnectionError) else error
    match cause:
        case httpx2.ConnectError() | httpx2.ConnectTimeout():  # the latter also if the endpoint hung up on the request
            said = "The model cannot be reached, or it closed the connection without an answer."
            return _failed("connection_error", said, error, model)
        case httpx2.TimeoutException():
            return _failed("timeout_error", "The model did not answer in time.", error, model)
    return _failed("connection_error", "The connection to the model was lost.", error, model)


def _failed(kind: str, said: str, error: anthropic.APIError | httpx2.TransportError, model: str) -> ModelFailure:
    return ModelFailure(kind, _message(kind, said, "", error, model), retryable=True)


def _message(
    kind: str, said: str, status: str, error: anthropic.APIError | httpx2.TransportError | StreamFailed, model: str
) -> str:
    """The endpoint's message, then status, model and endpoint, then advice."""
    text = f"{shortened(said, MOST_SAID).rstrip('.')} ({status}model {model} at {endpoint(str(error.request.url))})"
    return f"{text}. {_ADVICE[kind]}" if kind in _ADVICE else text


def endpoint(url: str) -> str:
    """Scheme, host and port only: the rest of the URL is not useful here and may contain a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _classify_status(error: anthropic.APIStatusError, model: str) -> ModelFailure:
    kind = error.type or _BY_STATUS.get(error.status_code, "api_error" if error.status_code >= 500 else UNKNOWN)
    said = error.api_message or f"The model API answered {error.status_code}."
    status, broken = f"status {error.status_code}; ", error.status_code >= 500
    return _classify_kind(kind, said, status, error, error.response.headers, model, retryable=broken)


def _classify_kind(
    kind: str,
    said: str,
    status: str,
    error: anthropic.APIError | StreamFailed,
    headers: httpx2.Headers,
    model: str,
    *,
    retryable: bool = False,
) -> ModelFailure:
    """`kind`: the API's own type of error. `retryable`: if the kind does not decide it."""
    message = _message(kind, said, status, error, model)
    if kind == "request_too_large" or (kind == "invalid_request_error" and "prompt is too long" in said):
        return ModelFailure(wire.CONTEXT_TOO_LONG, message, retryable=False)
    retryable = retryable or kind in _RETRYABLE
    advice = headers.get("x-should-retry")
    if advice in ("true", "false"):
        retryable = advice == "true"
    return ModelFailure(kind, message, retryable, _retry_after(headers.get("retry-after")))


def _retry_after(value: str | None) -> float | None:
    try:
        return min(max(float(value or ""), 0.0), LONGEST_WAIT)
    except ValueError:
        return None


def backoff(attempt: int, failure: ModelFailure) -> float:
    """Seconds until the next attempt: the server's retry-after, else 1, 2, 4 … up to 60."""
    if failure.wait is not None:
        return failure.wait
    return float(min(2 ** min(attempt - 1, 6), 60))
