"""Ids: 26 characters, URL-safe, sortable by time. Derived ids come from a key, never from a counter. Workflows are
named after what they run."""

import hashlib
import re
import secrets
import time
from contextvars import ContextVar

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford base 32: no i, l, o, u
ID_PATTERN = r"^[0-9a-hjkmnp-tv-z]{26}$"
_ID = re.compile(ID_PATTERN)

# The tenant for whom this request or activity runs: the database shows its rows only, and shares are counted for it.
current_tenant = ContextVar("current_tenant", default="")


def _encode(value: int, length: int) -> str:
    return "".join(ALPHABET[(value >> (5 * place)) & 31] for place in range(length - 1, -1, -1))


def new_id(now_ms: int | None = None) -> str:
    """A fresh id: 48 bits of time, then 80 random bits."""
    stamp = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return _encode(stamp, 10) + _encode(secrets.randbits(80), 16)


def derive_id(base: str, *parts: object) -> str:
    """The id derived from `base` and a key: equal in every retry, replay and reset, and sorted beside `base`."""
    named = [base, *map(str, parts)]
    digest = hashlib.sha256("".join(f"{len(part)}:{part}" for part in named).encode()).digest()
    return base[:10] + _encode(int.from_bytes(digest[:10], "big"), 16)


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def session_workflow_id(session_id: str) -> str:
    return f"session/{session_id}"


def conversation_workflow_id(conversation_id: str) -> str:
    return f"conversation/{conversation_id}"


def schedule_workflow_id(schedule_id: str) -> str:
    """The id of a schedule in Temporal, and the prefix of its ticks' workflow ids."""
    return f"schedule/{schedule_id}"
