"""A caller that repeats a request with the same key until it gets an answer, and records what was acknowledged."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from domain.ids import new_id
from domain.sessions.session import TERMINAL

GIVE_UP = 120.0


@dataclass
class Accepted:
    """A task that was acknowledged, and what must be true of it in the end."""

    id: str
    kind: str
    ends: frozenset[str] = frozenset({"completed"})
    ledger: Path | None = None
    children: int = 0  # outcomes that must reach its conversation, each once
    messages: list[str] = field(default_factory=list)  # sent to it while it ran; each must be in its context once
    # the sessions of its address, in the order in which their messages were acknowledged: they must begin in this order
    order: list[str] = field(default_factory=list)
    # messages that it sent to its subagents; each must be in their contexts once
    sent: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)  # each must be in exactly one of its tool results
    replies: list[str] = field(default_factory=list)  # the replies that its agent must give, in this order, each once
    started: list[str] | None = None  # the agents of its subagents, each of which must have started once
    # targets of its calls to an MCP server, by index; none may be called twice
    targets: list[str] = field(default_factory=list)
    steps: int = 0  # steps that must have begun once, in this order, each before all that it says
    reports: int = 0  # results of subagents that must reach its thread as messages, each once


class Caller:
    def __init__(self, url: str, key: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx2.AsyncClient(base_url=url, timeout=10, headers=headers)
        self.accepted: list[Accepted] = []
        self.asked = 0

    async def __aenter__(self) -> "Caller":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        key: str | None = None,
        *,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx2.Response:
        """Repeat a request until the response is something other than "try again later". With a key, a repetition is
        the same request."""
        give_up = time.monotonic() + GIVE_UP
        given = {**(headers or {}), **({"Idempotency-Key": key} if key else {})}
        while True:
            self.asked += 1
            pause = 0.2
            try:
                answer = await self._http.request(method, path, json=body, content=content, headers=given)
                if answer.status_code not in (429, 502, 503):
                    return answer
                pause = float(answer.headers.get("retry-after", pause))
            except httpx2.TransportError:
                pass
            assert time.monotonic() < give_up, f"{method} {path}: no answer in {GIVE_UP} s"
            await asyncio.sleep(pause)

    async def submit(
        self,
        kind: str,
        input: str,
        *,
        agent: str = "tester",
        key: str | None = None,
        config: dict[str, Any] | None = None,
    ) -> Accepted:
        body = {"agent": agent, "input": f"{input}\nref {new_id()}", "config": config or {}}
        answer = await self.ask("POST", "/tasks", body, key or new_id())
        assert answer.status_code == 202, answer.text
        accepted = Accepted(answer.json()["task_id"], kind)
        self.accepted.append(accepted)
        return accepted

    async def ended(self, task_id: str, seconds: float = GIVE_UP) -> dict[str, Any] | None:
        """The record once the task has ended; None if it has not ended in time."""
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            record: dict[str, Any] = (await self.ask("GET", f"/tasks/{task_id}")).json()
            if record.get("status") in TERMINAL:
                return record
            await asyncio.sleep(0.2)
        return None
