"""Token counts like the real API's: about four characters each, with a prompt cache."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_REMEMBERED = 20_000


@dataclass(frozen=True)
class InputUsage:
    input_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0

    @property
    def total(self) -> int:
        return self.input_tokens + self.cache_read_input_tokens + self.cache_creation_input_tokens


def tokens(characters: int) -> int:
    return (characters + 3) // 4


def count_input(body: dict[str, Any]) -> int:
    return tokens(sum(len(text) for text, _ in _blocks(body)))


class PromptCache:
    """Remembers the prefixes that ended at a cache_control mark, up to a limit."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def measure(self, body: dict[str, Any]) -> InputUsage:
        digest, characters = hashlib.sha256(body["model"].encode()), 0
        ends: list[tuple[bytes, int]] = []
        marks: list[int] = []
        for text, marked in _blocks(body):
            digest.update(text.encode("utf-8", "surrogatepass"))
            characters += len(text)
            ends.append((digest.copy().digest(), tokens(characters)))
            if marked:
                marks.append(len(ends) - 1)
        if body.get("cache_control") and ends:
            marks.append(len(ends) - 1)
        total = tokens(characters)
        if not marks:
            return InputUsage(total)
        cached = ends[marks[-1]][1]
        read = next((count for key, count in reversed(ends[: marks[-1] + 1]) if key in self._seen), 0)
        for mark in marks:
            self._seen[ends[mark][0]] = None
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return InputUsage(total - cached, read, cached - read)


def _blocks(body: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """The blocks of a request with their marks, in the order of caching: tools, system, messages."""
    system = body.get("system") or []
    yield from map(_block, body.get("tools") or [])
    yield from map(_block, [{"text": system}] if isinstance(system, str) else system)
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"text": content}] if isinstance(content, str) else content
        yield message["role"], False
        yield from map(_block, blocks)


def _block(block: dict[str, Any]) -> tuple[str, bool]:
    bare = {key: value for key, value in block.items() if key not in ("cache_control", "type")}
    text = bare["text"] if bare.keys() == {"text"} else json.dumps(bare, sort_keys=True, ensure_ascii=False)
    return text, bool(block.get("cache_control"))
