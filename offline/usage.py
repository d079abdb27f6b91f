"""Token counts like the real API's: about four characters each, with a prompt cache."""

import hashlib
import json
from collections import Counter, OrderedDict
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

_REMEMBERED = 20_000
_LATEST = 8
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
    texts, _ = _blocks(body)
    return tokens(sum(map(len, texts)))


class PromptCache:
    """Remembers the prefixes that ended at a cache_control mark, up to a limit."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, int] = OrderedDict()  # the length of each prefix by its hash
        self._lengths: Counter[int] = Counter()

    def measure(self, body: dict[str, Any]) -> InputUsage:
        texts, marked = _blocks(body)
        lengths = list(accumulate(map(len, texts)))  # of the prefixes that end with each block
        if body.get("cache_control"):
            marked.add(len(texts) - 1)
        if not marked:
            return InputUsage(tokens(lengths[-1]))
        last = max(marked)
        # only a prefix as long as a known one can be known
        possible = [index for index, length in enumerate(lengths[: last + 1]) if length in self._lengths]
        latest = possible[-_LATEST:]  # in a growing conversation the longest known prefix is one of these
        keys = _keys(body["model"], texts, {*marked, *latest})
        if len(possible) > len(latest) and not any(keys[index] in self._seen for index in latest):
            keys = _keys(body["model"], texts, {*marked, *possible})
        known = [index for index, key in keys.items() if key in self._seen]
        read = tokens(lengths[max(known)]) if known else 0
        cached = tokens(lengths[last])
        for index in sorted(marked):
            self._remember(keys[index], lengths[index])
        return InputUsage(tokens(lengths[-1]) - cached, read, cached - read)

    def _remember(self, key: bytes, length: int) -> None:
        if key not in self._seen:
            self._seen[key] = length
            self._lengths[length] += 1
        while len(self._seen) > _REMEMBERED:
            _, gone = self._seen.popitem(last=False)
            self._lengths[gone] -= 1
            if not self._lengths[gone]:
                del self._lengths[gone]


def _keys(model: str, texts: list[str], ends: set[int]) -> dict[int, bytes]:
    """A hash of the model and the texts up to each of these ends."""
    digest, hashed = hashlib.sha256(model.encode()), 0
    keys = {}
    for end in sorted(ends):
        digest.update("".join(texts[hashed : end + 1]).encode("utf-8", "surrogatepass"))
        hashed = end + 1
        keys[end] = digest.digest()
    return keys


def _blocks(body: dict[str, Any]) -> tuple[list[str], set[int]]:
    """The texts of the blocks in the order of caching (tools, system, messages), and the numbers of the marked ones."""
    texts: list[str] = []
    marked: set[int] = set()

    def add(blocks: list[dict[str, Any]]) -> None:
        for block in blocks:
            values = []
            for key, value in block.items():
                if key == "cache_control":
                    if value:
                        marked.add(len(texts))
                elif key == "source":
                    values.append(_picture(value))
                elif key == "content" and isinstance(value, list):
                    inner = [{**one, "source": _picture(one["source"])} if "source" in one else one for one in value]
                    values.append(_encoded(inner))
                elif key != "type":
                    values.append(value if isinstance(value, str) else _encoded(value))
            texts.append("\0".join(values))

    add(body.get("tools") or [])
    system = body.get("system") or []
    add([{"text": system}] if isinstance(system, str) else system)
    for message in body["messages"]:
        texts.append(message["role"])
        content = message["content"]
        if isinstance(content, str):
            texts.append(content)
        else:
            add(content)
    return texts, marked


def _picture(source: dict[str, Any]) -> str:
    """A picture or a page counts about the same, whatever its bytes."""
    return hashlib.sha256(source["data"].encode()).hexdigest().ljust(6_000)


def _encoded(value: Any) -> str:
    return "false" if value is False else _encode(value)  # most results have the former
