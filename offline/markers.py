"""Markers in a prompt, such as [[script:count n=3]]: their kind, name and options."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

_OPEN = re.compile(r"\[\[(script|fault):([a-z0-9_-]+)")
_OPTION = re.compile(r"([a-z_]+)=")
_PLAIN = re.compile(r"(?:(?!\]\])\S)*")
_DECODER = json.JSONDecoder()


class MarkerError(ValueError):
    """A marker cannot be parsed; the message gives the place."""


@dataclass(frozen=True)
class Marker:
    kind: str
    name: str
    raw: str
    options: dict[str, Any] = field(default_factory=dict)  # JSON where the value is JSON, else text

    def number(self, option: str, default: float) -> float:
        value = self.options.get(option, default)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise MarkerError(f"{self.raw}: {option}={value!r} is not a number") from None

    def count(self, option: str, default: int) -> int:
        return int(self.number(option, default))

    def text(self, option: str, default: str = "") -> str:
        return str(self.options.get(option, default))


def find_markers(text: str, kind: str) -> list[Marker]:
    """The markers of a kind, in order. A marker inside another's options is part of those options."""
    found, at = [], 0
    while opening := _OPEN.search(text, at):
        marker = _read(text, opening)
        at = opening.start() + len(marker.raw)
        found.append(marker)
    return [marker for marker in found if marker.kind == kind]


def without_markers(text: str, kinds: tuple[str, ...] = ("script", "fault")) -> str:
    for kind in kinds:
        for marker in find_markers(text, kind):
            text = text.replace(marker.raw, "")
    return text.strip()


def _read(text: str, opening: re.Match[str]) -> Marker:
    at = opening.end()
    options: dict[str, Any] = {}
    while True:
        at += len(text[at:]) - len(text[at:].lstrip())
        if text.startswith("]]", at):
            raw = text[opening.start() : at + 2]
            return Marker(kind=opening[1], name=opening[2], raw=raw, options=options)
        option = _OPTION.match(text, at)
        if option is None:
            raise MarkerError(f"{text[opening.start() : at + 20]!r}: expected option=value or ]]")
        options[option[1]], at = _value(text, option.end())


def _value(text: str, at: int) -> tuple[Any, int]:
    if text[at : at + 1] in ("[", "{", '"'):
        try:
            return _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise MarkerError(f"{text[at : at + 40]!r} is not JSON: {error.msg}") from None
    plain = _PLAIN.match(text, at)
    assert plain is not None  # the pattern matches the empty text too
    return plain[0], plain.end()
