"""Cursors of lists: opaque, and valid only for the same query."""

import base64
import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta

from api.http.problems import Unreadable
from domain.ids import is_id

_UTC = timedelta()


def cursor(query: Mapping[str, object], last_id: str, at: datetime | None = None) -> str:
    """A cursor. In a list ordered by time and then by id, `at` is the time of the last item."""
    moment = at.isoformat() if at else ""
    text = f"{last_id}{_digest(query, last_id + moment)}{moment}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position(query: Mapping[str, object], given: str | None) -> str | None:
    """The id in a cursor."""
    return None if given is None else moment_and_id(query, given)[1]


def moment_and_id(query: Mapping[str, object], given: str | None) -> tuple[datetime | None, str]:
    """The time and the id in a cursor; without an id, the list starts from the beginning."""
    if given is None:
        return None, ""
    try:
        text = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode("ascii")
        last_id, digest, moment = text[:26], text[26:42], text[42:]
        at = datetime.fromisoformat(moment) if moment else None
        if is_id(last_id) and digest == _digest(query, last_id + moment) and (at is None or at.utcoffset() == _UTC):
            return at, last_id
    except ValueError:
        pass  # it is not base64, or contains no moment
    raise Unreadable(400, "invalid-cursor", "This cursor is not from a list with the same filters.")


def _digest(query: Mapping[str, object], last: str) -> str:
    # not a signature: it detects a cursor of other filters, and a forged one shows nothing that the caller may not read
    text = json.dumps([query, last], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
