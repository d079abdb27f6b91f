"""Connectors refuse requests that no real service would send, and never fail with another error."""

import base64
import json
from typing import Any
from urllib.parse import urlencode

import pytest

from connectors.connector import SignedRequest
from connectors.slack import SlackConnector
from connectors.webhook import WebhookConnector
from domain.channels import ConnectorSecrets
from domain.errors import Invalid, NotAllowed, Refusal
from tests.support import signing

NOW = 1_700_000_000.0
KEY = base64.b64encode(b"0123456789abcdef").decode()
WEBHOOK, SLACK = ConnectorSecrets(signing=f"whsec_{KEY}"), ConnectorSecrets(signing="8f742231b10e8888abcd")
MESSAGE = {"channel_id": "room", "user_id": "ann", "text": "hello"}


def webhook(body: bytes, *, at: str = "1700000000", message_id: str = "m1", signed: str | None = None) -> SignedRequest:
    headers = signing.standard(WEBHOOK.signing, body, message_id, at)
    return SignedRequest(headers if signed is None else {**headers, "webhook-signature": signed}, body, NOW)


def slack(body: bytes, *, at: str = "1700000000", signed: str | None = None, form: bool = False) -> SignedRequest:
    headers = signing.slack(SLACK.signing, body, at) | ({} if signed is None else {"x-slack-signature": signed})
    kind = "application/x-www-form-urlencoded" if form else "application/json"
    return SignedRequest({**headers, "content-type": kind}, body, NOW)


@pytest.mark.parametrize("at", ["", "soon", "-1", "1699999699", "1700000301", "٣" * 10, "9" * 5_000, "1e9"])
def test_times_that_are_old_or_no_numbers_are_refused(at: str) -> None:
    body = json.dumps(MESSAGE).encode()
    with pytest.raises(NotAllowed, match="sign"):
        WebhookConnector().receive(webhook(body, at=at), WEBHOOK)
    with pytest.raises(NotAllowed, match="sign"):
        SlackConnector().receive(slack(body, at=at), SLACK)


@pytest.mark.parametrize("signed", ["", "v0=", "v1,", "v0=é", "v1,é é", "v2,abc", "\xff" * 100])
def test_signatures_that_do_not_fit_are_refused(signed: str) -> None:
    body = json.dumps(MESSAGE).encode()
    with pytest.raises(NotAllowed, match="sign"):
        WebhookConnector().receive(webhook(body, signed=signed), WEBHOOK)
    with pytest.raises(NotAllowed, match="sign"):
        SlackConnector().receive(slack(body, signed=signed), SLACK)


PRESS: dict[str, Any] = {"action_id": "errand_approve", "value": "x"}
EVENT = {"type": "message", "channel": "C1", "user": "U1", "text": "x", "ts": "1.2"}
PRESSED = {"channel": {"id": "C1"}, "user": {"id": "U1"}, "actions": [PRESS]}
NO_EVENTS: list[Any] = [None, [], "x", {}, {"type": "message", "text": "x"}, {**EVENT, "user": " "}]
NO_EVENTS += [{**EVENT, field: None} for field in ("channel", "user", "ts")]
NO_EVENTS += [{**EVENT, field: ["x"]} for field in ("channel", "user", "text")]
BODIES: list[Any] = [None, [], {}, "text", 7, True, {"type": None}, {"type": "event_callback"}]
BODIES += [{"type": "url_verification"}, *({"type": "event_callback", "event": event} for event in NO_EVENTS)]
NO_ACTIONS: list[Any] = [7, [None], [{"action_id": []}], [{**PRESS, "value": 1}]]
FORMS: list[Any] = [
    *(None, [], "x", {}, {"actions": None}, {**PRESSED, "channel": None}, {**PRESSED, "user": {"id": ""}}),
    *({**PRESSED, "actions": actions} for actions in NO_ACTIONS),
]


@pytest.mark.parametrize("body", BODIES)
def test_signed_nonsense_is_refused(body: Any) -> None:
    raw = json.dumps(body).encode()
    for connector, request, secrets in (
        (WebhookConnector(), webhook(raw), WEBHOOK),
        (SlackConnector(), slack(raw), SLACK),
    ):
        with pytest.raises(Invalid):
            connector.receive(request, secrets)


@pytest.mark.parametrize("body", FORMS)
def test_signed_nonsense_of_buttons_is_refused(body: Any) -> None:
    with pytest.raises(Invalid):
        SlackConnector().receive(slack(urlencode({"payload": json.dumps(body)}).encode(), form=True), SLACK)


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"{", b"NaN", b"[" * 100_000, b"payload="])
def test_broken_json_is_refused(raw: bytes) -> None:
    for connector, request, secrets in (
        (WebhookConnector(), webhook(raw), WEBHOOK),
        (SlackConnector(), slack(raw), SLACK),
        (SlackConnector(), slack(raw, form=True), SLACK),
    ):
        with pytest.raises(Invalid):
            connector.receive(request, secrets)


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
def test_text_that_cannot_be_stored_is_refused(text: str) -> None:
    for field in ("channel_id", "user_id", "message_id", "thread"):  # the text is checked where it is accepted
        with pytest.raises(Refusal):
            WebhookConnector().receive(webhook(json.dumps({**MESSAGE, field: text}).encode()), WEBHOOK)
    for field in ("channel", "user", "thread_ts"):
        event = {"type": "event_callback", "event": {**EVENT, field: text}}
        with pytest.raises(Refusal):
            SlackConnector().receive(slack(json.dumps(event).encode()), SLACK)
