"""Makes text safe for the model and the store: no hidden characters, and limited in length."""

import re

# NUL and other controls (but tab, newline, return), lone surrogates, and the invisible tag characters that can
# carry instructions nobody sees.
_HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\U000e0000-\U000e007f]")


def clean(text: str) -> str:
    return _HIDDEN.sub("", text)


def bounded(text: str, limit: int = 16_000) -> tuple[str, bool]:
    """At most about `limit` characters: the beginning and the end, with the number of characters left out between."""
    if len(text) <= limit:
        return text, False
    tail = limit // 4
    head = limit - tail
    left_out = len(text) - head - tail
    mark = f"\n… {left_out:,} of {len(text):,} characters left out …\n"
    return text[:head] + mark + text[len(text) - tail :], True
