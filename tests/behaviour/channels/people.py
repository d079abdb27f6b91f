"""Helpers to write to an agent through a connector and to read its answers."""

import json
import time
from typing import Any
from urllib.parse import quote

import httpx2

from domain.ids import new_id
from store import sessions
from store.sessions import SessionRow
from tests.behaviour.notifications.receivers import Receiver, Request
from tests.support import signing
from tests.support.stack import Stack, eventually

JSON = {"content-type": "application/json"}
ASKER: dict[str, Any] = {
    "name": "channel-asker",
    "description": "Asks people.",
    "prompt": "You are tested.",
    "tools": ["ask_user", "bash", "list_files", "read_file", "start_background_agent"],
    "may_ask": True,
}


class Service:
    """A chat service with one webhook connector; the agent's answers arrive at /in."""

    def __init__(self, stack: Stack, receiver: Receiver, name: str) -> None:
        self.stack, self.receiver, self.name = stack, receiver, name
        self.secret = self.hook = ""
        self.names = [name]

    @classmethod
    async def connected(cls, stack: Stack, receiver: Receiver) -> "Service":
        service = cls(stack, receiver, f"c-{new_id()}")
        made = await service.put(service.name, target=f"{receiver.url}/in")
        service.secret, service.hook = made["secret"], made["hook"]
        return service

    async def close(self) -> None:
        for name in self.names:
            await self.stack.http.delete(f"/connectors/{name}")

    async def put(self, name: str, **more: Any) -> dict[str, Any]:
        body = {"kind": "webhook", "agent": "tester", **more}
        answer = await self.stack.http.put(f"/connectors/{name}", json=body)
        assert answer.status_code == 200, answer.text
        self.names.append(name)
        made: dict[str, Any] = answer.json()
        return made

    async def asking(self) -> None:
        """Let an agent that may ask questions answer the service's messages."""
        assert (await self.stack.http.put(f"/agents/{ASKER['name']}", json=ASKER)).is_success
        await self.put(self.name, agent=ASKER["name"], target=f"{self.receiver.url}/in")

    async def post(self, text: str, channel: str = "room", user: str = "ann", **more: Any) -> httpx2.Response:
        name, headers = more.pop("connector", self.name), more.pop("headers", {})
        path = f"/channels/{name}/{quote(channel, safe='%')}/{quote(user, safe='%')}/messages"
        return await self.stack.http.post(path, json={"text": text, **more}, headers=headers)

    async def say(self, text: str, channel: str = "room", user: str = "ann", **more: Any) -> dict[str, Any]:
        answer = await self.post(text, channel, user, **more)
        assert answer.status_code == 202, answer.text
        accepted: dict[str, Any] = answer.json()
        return accepted

    async def reset(self, user: str = "ann") -> httpx2.Response:
        """Reset an address; 404 if nobody has written from it."""
        return await self.stack.http.post(f"/channels/{self.name}/room/{user}/reset")

    async def signed(
        self, body: Any, *, message_id: str = "", at: int | None = None, secret: str = ""
    ) -> httpx2.Response:
        """Build a request as the service sends it; it is signed without our code."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = str(int(time.time()) if at is None else at)
        headers = signing.standard(secret or self.secret, raw, message_id or new_id(), sent)
        return await self.stack.http.post(self.hook, content=raw, headers={**JSON, **headers})

    async def replies(self, count: int, path: str = "/in") -> list[Request]:
        return await self.receiver.got(path, count)

    async def ended(self, session_id: str) -> SessionRow:
        async def look() -> SessionRow | None:
            row = await sessions.get(self.stack.pool, "default", session_id)
            return row if row and row.status.terminal else None

        return await eventually(look, what=f"{session_id} ended")

    async def rows(self, conversation_id: str) -> list[SessionRow]:
        found = await sessions.find(self.stack.pool, "default", conversation_id=conversation_id, limit=200)
        rows = [await sessions.get(self.stack.pool, "default", one.id) for one in found]
        return sorted((row for row in rows if row), key=lambda row: row.id)
