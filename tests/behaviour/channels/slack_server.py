"""A local server for the part of Slack's Web API that the connector uses; it signs requests as Slack does."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2

from tests.support import signing
from tests.support.stack import eventually

SIGNING, TOKEN = "8f742231b10e8888abcd99yyyzzz85a5", "xoxb-canary-1"


@dataclass
class SlackServer:
    posted: list[dict[str, Any]] = field(default_factory=list)
    refuse: list[str] = field(default_factory=list)  # errors for the next calls
    # answers the next calls in another way than Slack would, with all that follows the request
    misbehave: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None
    held: int = 0  # calls that are being answered

    async def got(self, count: int) -> list[dict[str, Any]]:
        async def look() -> list[dict[str, Any]] | None:
            return self.posted if len(self.posted) >= count else None

        return await eventually(look, what=f"{count} posts, of {len(self.posted)}")

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        assert head[0].split(" ")[1] == "/api/chat.postMessage"
        if self.misbehave is not None:
            self.held += 1
            with contextlib.suppress(ConnectionError):
                await self.misbehave(writer)
            self.held -= 1
            writer.close()
            return
        said: dict[str, Any] = {"ok": True, "channel": body["channel"], "ts": f"{time.time():.6f}"}
        if headers["authorization"] != f"Bearer {TOKEN}":
            said = {"ok": False, "error": "invalid_auth"}
        elif self.refuse:
            said = {"ok": False, "error": self.refuse.pop(0)}
        else:
            self.posted.append(body)
        answer = json.dumps(said).encode()
        head_line = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n"
        writer.write(f"{head_line}Connection: close\r\n\r\n".encode() + answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def slack_server(url: str) -> AsyncIterator[SlackServer]:
    """Run it at the address that the stack takes for Slack's."""
    slack = SlackServer()
    async with await asyncio.start_server(slack.handle, "127.0.0.1", urlsplit(url).port):
        yield slack


async def send(
    http: httpx2.AsyncClient, hook: str, body: Any, *, secret: str = SIGNING, age: int = 0
) -> httpx2.Response:
    """Send a request in Slack's format; the payload of a button is sent as a form."""
    pressed = body.get("type") == "block_actions"
    raw = (urlencode({"payload": json.dumps(body)}) if pressed else json.dumps(body)).encode()
    kind = "application/x-www-form-urlencoded" if pressed else "application/json"
    headers = {"content-type": kind, **signing.slack(secret, raw, str(int(time.time()) - age))}
    return await http.post(hook, content=raw, headers=headers)


def message(text: str, ts: str, **more: Any) -> dict[str, Any]:
    event = {"type": "message", "channel": "C1", "user": "U1", "text": text, "ts": ts, **more}
    return {"type": "event_callback", "event_id": f"Ev{ts}", "team_id": "T1", "event": event}
