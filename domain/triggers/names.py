"""Names of events that agents emit, and the patterns with which others subscribe to them: `build:*:done`."""

MAX_CHARS = 200
_NAME = r"[a-z0-9][a-z0-9._-]{0,60}"
EVENT_NAME = rf"^{_NAME}(?::{_NAME}){{0,9}}$"
EVENT_PATTERN = rf"^(?:{_NAME}|\*)(?::(?:{_NAME}|\*)){{0,9}}(?::\*\*)?$"


def covers(pattern: str, name: str) -> bool:
    """`*` matches one part between colons; `**` at the end matches one or more further parts."""
    wanted, parts = pattern.split(":"), name.split(":")
    if wanted[-1] == "**":
        wanted = wanted[:-1]
        if len(parts) <= len(wanted):
            return False
        parts = parts[: len(wanted)]
    return len(wanted) == len(parts) and all(one in ("*", part) for one, part in zip(wanted, parts, strict=True))
