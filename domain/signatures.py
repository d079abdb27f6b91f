"""Signatures of requests that arrive without a key, after the Standard Webhooks convention."""

import hmac
from collections.abc import Mapping

from domain.errors import NotAllowed
from domain.notification import signature

REPLAY_WINDOW_S = 300  # a request signed longer ago, or so far in the future, is refused


def bad_signature(detail: str) -> NotAllowed:
    return NotAllowed(detail, type="bad-signature")


def check_standard_webhook(secrets: list[str], headers: Mapping[str, str], body: bytes, now: float) -> str:
    """The id of the message, if one of the secrets signed it lately; header names are in lower case."""
    message_id, sent, signed = (headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not message_id or not signed:
        raise bad_signature("The headers webhook-id, webhook-timestamp and webhook-signature are needed.")
    check_age(sent, now)
    wanted = [signature([secret], message_id, int(sent), body) for secret in secrets]
    if not any(hmac.compare_digest(one.encode(), given.encode()) for one in wanted for given in signed.split(" ")):
        raise bad_signature("The signature does not fit this body and the connector's secret.")
    return message_id


def check_age(sent: str, now: float) -> None:
    """Refuse a time that is no number of seconds, or outside the window in which a request may be sent again."""
    if not (sent.isascii() and sent.isdecimal() and len(sent) < 16) or abs(now - int(sent)) > REPLAY_WINDOW_S:
        raise bad_signature(f"It was not signed within the last {REPLAY_WINDOW_S} seconds.")
