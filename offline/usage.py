"""Token counts like the real API's: about four characters each, with a prompt cache."""

import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_REMEMBERED = 20_000
_encode = json.JSONEncoder(ensure_ascii=False).encode


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
        self._seen: OrderedDict[bytes, int] = OrderedDict()  # the length of each prefix by its hash
        self._lengths: Counter[int] = Counter()

    def measure(self, body: dict[str, Any]) -> InputUsage:
        digest, characters = hashlib.sha256(body["model"].encode()), 0
        read = cached = 0  # tokens
        known = 0  # the tokens of the longest known prefix so far
        marks: list[tuple[bytes, int]] = []
        since: list[str] = []  # not hashed yet
        blocks = list(_blocks(body))
        if body.get("cache_control") and blocks:
            blocks[-1] = blocks[-1][0], True
        for text, marked in blocks:
            since.append(text)
            characters += len(text)
            if not marked and characters not in self._lengths:
                continue  # no known prefix has this length
            digest.update("".join(since).encode("utf-8", "surrogatepass"))
            since.clear()
            key = digest.digest()
            if key in self._seen:
                known = tokens(characters)
            if marked:
                marks.append((key, characters))
                read, cached = known, tokens(characters)
        for key, length in marks:
            self._remember(key, length)
        return InputUsage(tokens(characters) - cached, read, cached - read)

    def _remember(self, key: bytes, length: int) -> None:
        if key not in self._seen:
            self._seen[key] = length
            self._lengths[length] += 1
        while len(self._seen) > _REMEMBERED:
            _, gone = self._seen.popitem(last=False)
            self._lengths[gone] -= 1
            if not self._lengths[gone]:
                del self._lengths[gone]


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
    values = [_text(value) for key, value in block.items() if key not in ("cache_control", "type")]
    return "\0".join(values), bool(block.get("cache_control"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _encode(value)
