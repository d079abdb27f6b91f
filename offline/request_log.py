"""A log of the latest requests and their outcomes, for assertions in tests."""

import json
from collections import deque
from dataclasses import dataclass
from typing import Any

MAX_REQUESTS = 2_000
MAX_BYTES = 67_108_864


@dataclass
class Entry:
    id: str
    body: bytes
    model: str = ""
    turn: int = 0  # number of the requested reply in its conversation, from 1
    status: int = 200
    outcome: str = "open"  # then answered, error, cut, dropped or disconnected

    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "model": self.model,
            "turn": self.turn,
            "status": self.status,
            "outcome": self.outcome,
            "body": json.loads(self.body),
        }


class RequestLog:
    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._bytes = 0

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._bytes += len(entry.body)
        while len(self._entries) > MAX_REQUESTS or (self._bytes > MAX_BYTES and len(self._entries) > 1):
            self._bytes -= len(self._entries.popleft().body)

    def find(self, contains: str) -> list[dict[str, Any]]:
        """The requests that contain a text, oldest first, however JSON has escaped it."""
        spellings = {json.dumps(contains, ensure_ascii=ascii)[1:-1].encode() for ascii in (True, False)}
        return [entry.shown() for entry in self._entries if any(text in entry.body for text in spellings)]

    def clear(self) -> None:
        self._entries.clear()
        self._bytes = 0
