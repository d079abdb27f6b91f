"""What is not shown: strings that look like keys, known secret values, and sealed texts.

What an agent happens to print or pass to a tool must not be copied into histories, events, traces and summaries. What
is sent to models, run, approved or replayed stays as it is. The encryption of sealed texts is in domain/sealing.py,
which workflows must not import.
"""

import base64
import json
import re
from collections.abc import Iterable
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

from pydantic import BaseModel

REDACTED = "[redacted]"
_BEYOND = 200  # characters after a cut: a key that the cut would divide is seen whole
# A boundary is looked for after the letters that it precedes: a pattern that begins with letters is ten times faster.
# What may repeat has an end, or does not begin inside itself: else a text of nothing but beginnings takes minutes.
_KEYS = re.compile(
    r"""
    (?:sk|rk|pk)(?<=\b..)[-_](?:[A-Za-z0-9]+[-_]){0,6}[A-Za-z0-9]{16,}                       # model vendors, Stripe
    | ek_(?<=\b...)[0-9a-z]{12}_[A-Za-z0-9_-]{43}                                            # our own
    | (?:gh[opsur](?<=\b...)|github_pat|glpat|npm(?<=\b...)|hf(?<=\b..))[-_][A-Za-z0-9_-]{16,} # forges and registries
    | whsec_[A-Za-z0-9+/=]{20,}
    | (?:AKIA|ASIA)(?<=\b....)[A-Z0-9]{16}\b
    | AIza[A-Za-z0-9_-]{30,}
    | xox[a-z]-[A-Za-z0-9-]{10,}
    | eyJ(?<![A-Za-z0-9_-]...)[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*           # JSON Web Tokens
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----[A-Za-z0-9+/=\s\\]*
    """,
    re.VERBOSE,
)
_NAMES = r"(?:password|passwd|secret|token|api[_-]?key|access[_-]?key)"
_NAMED = re.compile(
    # quotes in a text of JSON follow a backslash
    rf"""({_NAMES}\\*["']?\s*[=:]\s*\\*["']?|\bBearer\s+)([^\s"'@&;,)]{{6,}})""",
    re.IGNORECASE,
)
_MAY_BE_NAMED = re.compile(rf"{_NAMES}|bearer")
_SECRET_NAME = re.compile(rf".*{_NAMES}", re.IGNORECASE | re.DOTALL)
_IN_URL = re.compile(r"(://[^\s/:@]+:)[^\s/@]+(?=@)")


def redact(text: str) -> str:
    """The text without strings that look like keys or follow `password=` and the like."""
    text = _KEYS.sub(REDACTED, text)
    if _MAY_BE_NAMED.search(text.lower()):
        text = _NAMED.sub(lambda match: match[1] + REDACTED, text)
    return _IN_URL.sub(lambda match: match[1] + REDACTED, text)


def shorten_and_redact(text: str, limit: int) -> str:
    """The beginning of a text without keys, and how much of it is left out."""
    shown, left = redact(text[: limit + _BEYOND]), len(text) - limit
    return shown if left <= 0 else f"{shown[:limit]}… [{left} more characters]"


def redact_json(value: Any) -> Any:
    """A JSON value with its texts redacted, and each text whose name says that it is a secret."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(name): _member(name, one) for name, one in value.items()}
    return [redact_json(one) for one in value] if isinstance(value, list) else value


def _member(name: str, value: Any) -> Any:
    return REDACTED if isinstance(value, str) and value and _SECRET_NAME.fullmatch(name) else redact_json(value)


# Known secret values, wherever a tool or an error repeats them, also in the usual encodings.


Model = TypeVar("Model", bound=BaseModel)
SHORTEST = 4  # characters; shorter values would match everywhere
LONG_LINE = 12  # a single line of a multi-line key is a secret too


class Redactor:
    """Replaces values in texts. Without values it changes nothing. Its repr shows none."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms: list[str] = []
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        known = [value for value in values if len(value) >= SHORTEST]
        known += [line for value in known for line in value.splitlines() if len(line) >= LONG_LINE and line != value]
        # longest first, because one value may contain another
        self._forms = sorted(
            {*self._forms, *(form for value in known for form in _forms(value))}, key=len, reverse=True
        )

    def __bool__(self) -> bool:
        return bool(self._forms)

    def text(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, REDACTED)
        return text

    def json(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name): self.json(one) for name, one in value.items()}
        return [self.json(one) for one in value] if isinstance(value, list) else value

    def model(self, model: Model) -> Model:
        return type(model).model_validate(self.json(model.model_dump(mode="json"))) if self else model


def _forms(value: str) -> set[str]:
    data = value.encode()
    encoded = {base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex()}
    quoted = {quote(value, safe=""), quote_plus(value), quote(value)}
    escaped = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    return {value, *quoted, *escaped, *(one.rstrip("=") for one in encoded)}


# Sealed texts


PREFIX = "sealed:"
MASK = "(secret)"


def is_sealed(value: object) -> bool:
    return isinstance(value, str) and value.startswith(PREFIX)


def mask_sealed(value: Any) -> Any:
    """A JSON value as it may be shown: every sealed text in it is replaced."""
    if isinstance(value, dict):
        return {name: mask_sealed(one) for name, one in value.items()}
    if isinstance(value, list):
        return [mask_sealed(one) for one in value]
    return MASK if is_sealed(value) else value
