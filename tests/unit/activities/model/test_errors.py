"""The error text of a failed model call: status, model, endpoint and advice."""

import anthropic
import httpx2
import pytest

from activities.model.models import ModelFailure, Models
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
