"""Real receivers on loopback: an HTTP server with configurable answers, and an SMTP server that keeps its messages."""

import asyncio
import email
import email.policy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any

from tests.support import signing
from tests.support.stack import eventually
from tests.support.web_server import response, web_server


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def signed_by(self, secret: str) -> bool:
        """Verify the signature as a receiver would, without our code."""
        wanted = signing.standard(secret, self.body, self.headers["webhook-id"], self.headers["webhook-timestamp"])
        return wanted["webhook-signature"] in self.headers["webhook-signature"].split(" ")


@dataclass
class Receiver:
    """`answers` lists the statuses that a path returns, in order; the last one is repeated. Other paths return 204."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    answers: dict[str, list[str]] = field(default_factory=dict)
    refuse: Callable[[Request], str | None] = lambda _: None  # the status for one request, instead of these
    held: asyncio.Event | None = None  # while this is an event that is not set, no request is answered

    def at(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    async def got(self, path: str, count: int = 1) -> list[Request]:
        async def look() -> list[Request] | None:
            found = self.at(path)
            return found if len(found) >= count else None

        return await eventually(look, pause=0.05, what=f"{count} requests at {path}, of {len(self.at(path))}")

    async def answer(self, head: str, body: bytes) -> bytes:
        first, *rest = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        path = first.split(" ")[1]
        self.requests.append(request := Request(path, headers, body))
        if self.held is not None:
            await self.held.wait()
        said = self.answers.get(path, ["204 No Content"])
        status, *more = (self.refuse(request) or (said.pop(0) if len(said) > 1 else said[0])).split("\r\n")
        return response(b"", status, *more)


@asynccontextmanager
async def http_receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    async with web_server(receiver.answer) as address:
        receiver.url = f"http://{address}"
        yield receiver


@dataclass
class Mail:
    """The part of RFC 5321 that a client needs. It checks the order of the commands and refuses unknown ones."""

    messages: list[EmailMessage] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)  # those of the envelopes
    refuse: list[str] = field(default_factory=list)  # replies that refuse the next recipients, such as "451 later"
    attempts: int = 0  # the number of recipients, including refused ones

    async def got(self, count: int) -> list[EmailMessage]:
        async def look() -> list[EmailMessage] | None:
            return self.messages if len(self.messages) >= count else None

        return await eventually(look, what=f"{count} messages, of {len(self.messages)}")

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        sender, recipients = False, list[str]()
        while line := (await reader.readline()).decode().strip():
            verb, answer = line.upper().split(":")[0].split(" ")[0], "250 ok"
            if verb == "MAIL":
                sender, recipients = True, []
            elif verb == "RCPT" and sender:
                self.attempts += 1
                answer = self.refuse.pop(0) if self.refuse else answer
                recipients += [] if answer[0] != "2" else [line.split("<")[1].split(">")[0]]
            elif verb == "DATA" and recipients:
                writer.write(b"354 end with a dot\r\n")
                raw = (await reader.readuntil(b"\r\n.\r\n"))[:-3].replace(b"\r\n..", b"\r\n.")
                parsed = email.message_from_bytes(raw, policy=email.policy.default)
                assert isinstance(parsed, EmailMessage)
                self.messages.append(parsed)
                self.recipients += recipients
                sender = False
            elif verb in ("RCPT", "DATA"):
                answer = "503 bad sequence of commands"
            elif verb == "QUIT":
                answer = "221 bye"
            elif verb not in ("EHLO", "HELO", "RSET", "NOOP"):
                answer = "502 not implemented"
            writer.write(f"{answer}\r\n".encode())
            if verb == "QUIT":
                break
        writer.close()


@asynccontextmanager
async def smtp_receiver(port: int) -> AsyncIterator[Mail]:
    mail = Mail()
    async with await asyncio.start_server(mail.handle, "127.0.0.1", port):
        yield mail
