"""The error text of a failed model call: status, model, endpoint and advice."""

import anthropic
import httpx2
import pytest

from activities.model.models import ModelFailure, Models, StreamFailed
from domain import wire
from domain.agents.models import PriceTable, Provider, Providers

REQUEST = httpx2.Request("POST", "http://name:secret@gateway.example:8443/v1/messages?key=secret")
PROVIDERS = Providers(named={"anthropic": Provider(kind="anthropic", key="key")})
MODELS = Models(PROVIDERS, PriceTable(providers=PROVIDERS))


def classify_failure(error: Exception, model: str) -> ModelFailure:
    return MODELS.classify(error, model)


def refused() -> anthropic.APIConnectionError:
    error = anthropic.APIConnectionError(request=REQUEST)
    error.__cause__ = httpx2.ConnectError("refused", request=REQUEST)
    return error


@pytest.mark.parametrize(
    ("error", "kind", "begins", "advice"),
    [
        (
            refused(),
            "connection_error",
            "The model cannot be reached, or it closed the connection without an answer (model m",
            "ANTHROPIC_BASE_URL",
        ),
        (
            anthropic.AuthenticationError("no", response=httpx2.Response(401, request=REQUEST), body=None),
            "authentication_error",
            "The model API answered 401 (status 401; model m",
            "ANTHROPIC_API_KEY",
        ),
    ],
)
def test_failure_names_model_endpoint_and_advice(error: Exception, kind: str, begins: str, advice: str) -> None:
    failure = classify_failure(error, "m")
    assert failure.type == kind and failure.message.startswith(f"{begins} at http://gateway.example:8443). ")
    assert advice in failure.message and "secret" not in failure.message


def test_message_of_the_endpoint_is_bounded_and_shows_no_key() -> None:
    said = f"Invalid key sk-ant-api03-{'a' * 40}: " + "x" * 5_000
    body = {"type": "error", "error": {"type": "authentication_error", "message": said}}
    error = anthropic.AuthenticationError("no", response=httpx2.Response(401, request=REQUEST), body=body)
    message = classify_failure(error, "m").message
    assert message.startswith("Invalid key [redacted]: xxx") and "aaaa" not in message and len(message) < 800


@pytest.mark.parametrize(
    ("said", "type"),
    [
        ("Your credit balance is too low to access the Anthropic API.", "billing_error"),
        ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000", wire.CONTEXT_TOO_LONG),
        ("Input is too long for requested model.", wire.CONTEXT_TOO_LONG),
    ],
)
def test_a_bad_request_can_mean_something_else(said: str, type: str) -> None:
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
    error = anthropic.BadRequestError("no", response=httpx2.Response(400, request=REQUEST), body=body)
    assert classify_failure(error, "m").type == type


@pytest.mark.parametrize(
    ("data", "type", "begins", "retryable"),
    [
        ('{"type":"error","error":{"type":"overloaded_error","message":"Busy"}}', "overloaded_error", "Busy (", True),
        ('{"error":{"type":"invalid_request_error","message":"no"}}', "invalid_request_error", "no (", False),
        (
            '{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens"}}',
            wire.CONTEXT_TOO_LONG,
            "prompt is too long: 9 tokens (",
            False,
        ),
        ('{"error":"boom"}', "unknown_error", '{"error":"boom"} (', False),
        ("out of order", "unknown_error", "out of order (", False),
    ],
)
def test_error_inside_a_stream_is_classified_by_its_type(data: str, type: str, begins: str, retryable: bool) -> None:
    failure = classify_failure(StreamFailed(data.encode(), httpx2.Response(200, request=REQUEST)), "m")
    assert (failure.type, failure.retryable) == (type, retryable)
    assert failure.message.startswith(begins) and "model m at http://gateway.example:8443)" in failure.message


def test_type_of_an_error_inside_a_stream_is_bounded() -> None:
    failed = StreamFailed(b'{"error":{"type":"' + b"x" * 5_000 + b'"}}', httpx2.Response(200, request=REQUEST))
    assert classify_failure(failed, "m").type == "x" * 64 and len(classify_failure(failed, "m").message) < 300
