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


class PromptCache:
    """Remembers the prefixes that ended at a cache_control mark, up to a limit."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def measure(self, body: dict[str, Any]) -> InputUsage:
        digest, length, known = hashlib.sha256(body["model"].encode()), 0, 0
        read = cached = 0
        marked: list[bytes] = []
        for text, mark in _blocks(body):
            digest.update(text.encode("utf-8", "surrogatepass"))
            length += len(text)
            known = length if digest.digest() in self._seen else known
            if mark:
                read, cached = known, length
                marked.append(digest.digest())
        for key in marked:
            self._seen[key] = None
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return InputUsage(tokens(length) - tokens(cached), tokens(read), tokens(cached) - tokens(read))


def _blocks(body: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """The texts of the blocks in the order of caching (tools, system, messages), and whether they are marked."""
    system = body.get("system") or []
    before = [*(body.get("tools") or []), *([{"text": system}] if isinstance(system, str) else system)]
    for block in before:
        yield _text(block), bool(block.get("cache_control"))
    for message in body["messages"]:
        content = message["content"]
        yield message["role"], False
        for block in [{"text": content}] if isinstance(content, str) else content:
            yield _text(block), bool(block.get("cache_control"))


def _text(block: dict[str, Any]) -> str:
    return "\0".join(_value(key, value) for key, value in block.items() if key not in ("type", "cache_control"))


def _value(key: str, value: Any) -> str:
    if key == "source":  # a picture or a page counts about the same, whatever its bytes
        return hashlib.sha256(value["data"].encode()).hexdigest().ljust(6_000)
    if key == "content" and isinstance(value, list):
        return "\0".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
