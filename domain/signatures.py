"""Signatures of requests that arrive without an API key: those of Standard Webhooks, GitHub and Slack."""

import hashlib
import hmac
from collections.abc import Mapping

from domain.errors import NotAllowed
from domain.notifications import signature

REPLAY_WINDOW_S = 300  # a request signed longer ago, or so far in the future, is refused


def bad_signature(detail: str) -> NotAllowed:
    return NotAllowed(detail, type="bad-signature")


def check_standard_webhook(secrets: list[str], headers: Mapping[str, str], body: bytes, now: float) -> str:
    """The id of the message, if one of the secrets signed it recently; header names are in lower case."""
    message_id, sent, signed = (headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not message_id or not signed:
        raise bad_signature("The headers webhook-id, webhook-timestamp and webhook-signature are needed.")
    check_age(sent, now)
    wanted = [signature([secret], message_id, int(sent), body) for secret in secrets]
    # in constant time: the duration must not show how much of a guessed signature is right
    if not any(hmac.compare_digest(one.encode(), given.encode()) for one in wanted for given in signed.split(" ")):
        raise bad_signature("The signature does not fit this body and the connector's secret.")
    return message_id


def check_age(sent: str, now: float) -> None:
    """Refuse a time that is not a number of seconds, or lies outside the window in which a request may be sent
    again."""
    if not (sent.isascii() and sent.isdecimal() and len(sent) < 16) or abs(now - int(sent)) > REPLAY_WINDOW_S:
        raise bad_signature(f"It was not signed within the last {REPLAY_WINDOW_S} seconds.")


def check_github(secret: str, headers: Mapping[str, str], body: bytes) -> None:
    """GitHub signs the body alone: neither the time nor the id of the delivery."""
    wanted = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(wanted.encode(), headers.get("x-hub-signature-256", "").encode()):
        raise bad_signature("The header x-hub-signature-256 does not fit this body and the secret.")


def check_slack(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> None:
    sent, signed = (headers.get(f"x-slack-{name}", "") for name in ("request-timestamp", "signature"))
    check_age(sent, now)
    wanted = "v0=" + hmac.new(secret.encode(), b"v0:" + sent.encode() + b":" + body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(wanted.encode(), signed.encode()):
        raise bad_signature("Slack did not sign this body with the signing secret.")
