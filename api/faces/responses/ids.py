"""Public ids of the Responses face. All derive from ids of sessions, conversations and input requests."""

import re
from typing import NamedTuple

from domain.ids import ID_PATTERN

_ID = ID_PATTERN.strip("^$")
_RESPONSE = re.compile(rf"resp_({_ID})(?:_([1-9][0-9]{{0,5}}))?")


class ResponseId(NamedTuple):
    """A response is one part of a session: it lasts until the session ends or waits for its caller alone."""

    session_id: str
    part: int = 1

    def __str__(self) -> str:
        return f"resp_{self.session_id}" + (f"_{self.part}" if self.part > 1 else "")

    @classmethod
    def parse(cls, text: str) -> "ResponseId | None":
        found = _RESPONSE.fullmatch(text)
        if found is None or found[2] == "1":  # the first part has only the short id
            return None
        return cls(found[1], int(found[2] or 1))


def without_prefix(prefix: str, text: str) -> str | None:
    """The id in `prefix_<id>`; None if the text is something else."""
    found = re.fullmatch(rf"{prefix}_({_ID})", text)
    return found[1] if found else None
