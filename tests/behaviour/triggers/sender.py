"""A service that sends signed events; each kind is signed without our code."""

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import httpx2

from domain.ids import new_id
from tests.support.stack import Stack

SECRET = "a-secret-of-the-tests-0123456789"


class Sender:
    """One trigger and the events that were sent to it."""

    def __init__(self, stack: Stack, name: str, made: dict[str, Any]) -> None:
        self.stack, self.name, self.made = stack, name, made
        self.secret = made["secret"] or SECRET

    @classmethod
    async def new(cls, stack: Stack, signature: str = "standard_webhooks", **body: Any) -> "Sender":
        name = f"t-{new_id()}"
        if signature != "standard_webhooks":
            body = {"secret": SECRET, **body}
        body = {"signature": signature, "task": {"agent": "tester", "input": "Look at this."}, **body}
        answer = await stack.http.put(f"/triggers/{name}", json=body)
        assert answer.status_code == 200, answer.text
        return cls(stack, name, answer.json())

    async def send(self, payload: Any, *, path: str = "", **signed: Any) -> httpx2.Response:
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        headers = getattr(self, f"_{self.made['signature']}")(raw, **signed)
        return await self.stack.http.post(path or f"/triggers/{self.name}", content=raw, headers=headers)

    async def accepted(self, payload: Any, **signed: Any) -> dict[str, Any]:
        answer = await self.send(payload, **signed)
        assert answer.status_code == 202, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def events(self) -> list[dict[str, Any]]:
        sql = "SELECT * FROM external_events WHERE source = $1 ORDER BY created_at DESC"
        return [dict(row) for row in await self.stack.pool.fetch(sql, self.made["id"])]

    def _standard_webhooks(
        self, raw: bytes, *, event_id: str = "", at: int | None = None, secret: str = ""
    ) -> dict[str, str]:
        event_id, at = event_id or new_id(), int(time.time()) if at is None else at
        key = base64.b64decode((secret or self.secret).removeprefix("whsec_"))
        digest = hmac.new(key, f"{event_id}.{at}.".encode() + raw, hashlib.sha256).digest()
        return {
            "content-type": "application/json",
            "webhook-id": event_id,
            "webhook-timestamp": str(at),
            "webhook-signature": "v1," + base64.b64encode(digest).decode(),
        }

    def _github(self, raw: bytes, *, delivery: str = "", event: str = "push", secret: str = "") -> dict[str, str]:
        digest = hmac.new((secret or self.secret).encode(), raw, hashlib.sha256).hexdigest()
        return {
            "content-type": "application/json",
            "x-github-delivery": delivery or new_id(),
            "x-github-event": event,
            "x-hub-signature-256": f"sha256={digest}",
        }

    def _slack(self, raw: bytes, *, at: int | None = None, secret: str = "") -> dict[str, str]:
        at = int(time.time()) if at is None else at
        digest = hmac.new((secret or self.secret).encode(), f"v0:{at}:".encode() + raw, hashlib.sha256).hexdigest()
        return {
            "content-type": "application/json",
            "x-slack-request-timestamp": str(at),
            "x-slack-signature": f"v0={digest}",
        }
