"""Key-shaped strings in what is shown: what an agent happens to print or pass to a tool must not be copied into
histories, events, traces and summaries. What is sent to models, run, approved or replayed stays as it is."""

import re
from typing import Any

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


def redacted(text: str) -> str:
    """The text without strings that look like keys or follow `password=` and the like."""
    text = _KEYS.sub(REDACTED, text)
    if _MAY_BE_NAMED.search(text.lower()):
        text = _NAMED.sub(lambda match: match[1] + REDACTED, text)
    return _IN_URL.sub(lambda match: match[1] + REDACTED, text)


def shortened(text: str, limit: int) -> str:
    """The beginning of a text without keys, and how much of it is left out."""
    shown, left = redacted(text[: limit + _BEYOND]), len(text) - limit
    return shown if left <= 0 else f"{shown[:limit]}… [{left} more characters]"


def redacted_json(value: Any) -> Any:
    """A JSON value with its texts redacted, and each text whose name says that it is a secret."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {redacted(name): _member(name, one) for name, one in value.items()}
    return [redacted_json(one) for one in value] if isinstance(value, list) else value


def _member(name: str, value: Any) -> Any:
    return REDACTED if isinstance(value, str) and value and _SECRET_NAME.fullmatch(name) else redacted_json(value)
