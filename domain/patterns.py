"""Regular expressions that others write. RE2 runs them in linear time, so that none can block a process."""

from functools import lru_cache
from typing import Any

import re2
from pydantic_core import PydanticCustomError

MAX_CHARS = 1_000
_MEMORY = 1 << 20  # of one compiled pattern; with much less, RE2 falls back to a slower algorithm


class PatternError(ValueError):
    """The pattern cannot be used; the message says why."""


def check_pattern(pattern: str) -> None:
    """Raise PatternError unless the pattern can be used."""
    _compile(pattern)


def accept_pattern(pattern: str) -> str:
    """The same for a field of a model."""
    try:
        check_pattern(pattern)
    except PatternError as error:
        raise PydanticCustomError("invalid_pattern", "{reason}", {"reason": str(error)}) from None
    return pattern


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern matches anywhere in the text."""
    # a lone surrogate, which JSON may contain, has no UTF-8 form
    return _compile(pattern).search(text.encode(errors="replace").decode()) is not None


@lru_cache(maxsize=128)
def _compile(pattern: str) -> Any:
    if len(pattern) > MAX_CHARS:
        raise PatternError(f"a regular expression may have {MAX_CHARS} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if isinstance(error, re2.error) else "it is not valid Unicode"
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise PatternError(f"not a regular expression of RE2 (which has no lookaround): {reason}") from None
