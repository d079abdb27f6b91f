"""Cursors of lists: opaque, and valid only for the query that they came from."""

import base64
import hashlib
import json
from collections.abc import Mapping

from api.http.problems import Unreadable
from domain.ids import is_id


def cursor(query: Mapping[str, object], last_id: str) -> str:
    return base64.urlsafe_b64encode(f"{last_id}{_digest(query, last_id)}".encode()).decode().rstrip("=")


def position(query: Mapping[str, object], given: str | None) -> str | None:
    """The id that a cursor contains."""
    if given is None:
        return None
    try:
        text = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode("ascii")
    except ValueError:
        text = ""
    last_id, digest = text[:26], text[26:]
    if not is_id(last_id) or digest != _digest(query, last_id):
        raise Unreadable(400, "invalid-cursor", "This cursor is not from a list with the same filters.")
    return last_id


def _digest(query: Mapping[str, object], last_id: str) -> str:
    text = json.dumps([query, last_id], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
