"""Text and JSON of MCP servers, cleaned before they are stored or shown: no NUL, which PostgreSQL refuses, and nothing
that people do not see but a model reads."""

import re
from typing import Any

from activities.tools.tool import clean

_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # they change the order in which text is shown


def clean_text(text: str) -> str:
    return _BIDI.sub("", clean(text))


def clean_json(value: Any) -> Any:
    """The value with all its keys and texts cleaned."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(name)): clean_json(one) for name, one in value.items()}
    return [clean_json(one) for one in value] if isinstance(value, list) else value


def quote_text(text: str, longest: int) -> str:
    """A text of a server in one line and in quotation marks, so that it does not pass for ours."""
    line = " ".join(clean_text(text).replace('"', "'").split())
    return f'"{line if len(line) <= longest else line[: longest - 1] + "…"}"'
