"""A service that sends signed events; each kind is signed without our code."""

import json
import time
from typing import Any

import httpx2

from domain.ids import new_id
from tests.support import signing
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
        headers = {"content-type": "application/json", **getattr(self, f"_{self.made['signature']}")(raw, **signed)}
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
        sent = str(int(time.time()) if at is None else at)
        return signing.standard(secret or self.secret, raw, event_id or new_id(), sent)

    def _github(self, raw: bytes, *, delivery: str = "", event: str = "push", secret: str = "") -> dict[str, str]:
        signed = signing.github(secret or self.secret, raw)
        return {**signed, "x-github-delivery": delivery or new_id(), "x-github-event": event}

    def _slack(self, raw: bytes, *, at: int | None = None, secret: str = "") -> dict[str, str]:
        return signing.slack(secret or self.secret, raw, str(int(time.time()) if at is None else at))
