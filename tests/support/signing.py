"""Signatures of services as their documents define them, written without our code."""

import base64
import hashlib
import hmac


def standard(secret: str, body: bytes, message_id: str, at: str) -> dict[str, str]:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"{message_id}.{at}.".encode() + body, hashlib.sha256)
    signature = "v1," + base64.b64encode(digest).decode()
    return {"webhook-id": message_id, "webhook-timestamp": at, "webhook-signature": signature}


def slack(secret: str, body: bytes, at: str) -> dict[str, str]:
    digest = hmac.new(secret.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    return {"x-slack-request-timestamp": at, "x-slack-signature": f"v0={digest}"}


def github(secret: str, body: bytes) -> dict[str, str]:
    return {"x-hub-signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}
