"""Readers of event streams that lose their connection repeatedly and must still receive every event."""

import asyncio
import json
import time
from random import Random

import httpx2

from tests.faults.caller import GIVE_UP

ENDS = ("task_completed", "task_failed", "task_cancelled")


class Reader:
    """Reads one task's stream to its end over many connections; each continues where the last one was cut."""

    def __init__(self, url: str, task_id: str, random: Random) -> None:
        self.task_id = task_id
        self.seen: list[tuple[int, str]] = []
        self.connections = 0
        self._url = url
        self._random = random

    async def read(self) -> None:
        give_up = time.monotonic() + GIVE_UP
        async with httpx2.AsyncClient(base_url=self._url, timeout=httpx2.Timeout(10, read=20)) as http:
            while not self.done and time.monotonic() < give_up:
                try:
                    async with asyncio.timeout(self._random.uniform(0.2, 3)):
                        await self._connection(http)
                except (TimeoutError, httpx2.TransportError):
                    await asyncio.sleep(0.05)

    @property
    def done(self) -> bool:
        return bool(self.seen) and self.seen[-1][1] in ENDS

    @property
    def faults(self) -> int:
        """How many rules are broken: numbers are 1, 2, 3 …, one event is terminal, and it is the last."""
        numbers = [number for number, _ in self.seen]
        ends = sum(kind in ENDS for _, kind in self.seen)
        return (numbers != list(range(1, len(numbers) + 1))) + (ends != 1) + (not self.done)

    async def _connection(self, http: httpx2.AsyncClient) -> None:
        self.connections += 1
        headers = {"Accept": "text/event-stream"}
        if self.seen:
            headers["Last-Event-ID"] = str(self.seen[-1][0])
        async with http.stream("GET", f"/tasks/{self.task_id}/events", headers=headers) as answer:
            if answer.status_code != 200:
                await asyncio.sleep(0.2)
                return
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    event = json.loads(line[5:])
                    self.seen.append((event["seq"], event["type"]))
