"""Parameters and cursors of lists: a cursor is opaque, and valid only for the same query."""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, Field

from api.http.problems import Unreadable
from domain.ids import is_id

_UTC = timedelta()
T = TypeVar("T")


class Parameters(BaseModel, extra="forbid"):
    """Unknown parameters are refused, so that a misspelt one does not seem to have been applied."""


class ListParameters(Parameters):
    cursor: str | None = Field(default=None, max_length=200)
    limit: int = Field(default=50, ge=1, le=200)

    @property
    def filters(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"cursor", "limit"})

    def after(self, **scope: str) -> str | None:
        """The id at which the page before ended; `scope`: what else the list is of."""
        return position(self.filters | scope, self.cursor)

    def page(self, found: list[T], last_id: Callable[[T], str], **scope: str) -> tuple[list[T], str | None]:
        """The page, of one more than it may have, and the cursor of the next."""
        shown = found[: self.limit]
        return shown, cursor(self.filters | scope, last_id(shown[-1])) if len(found) > self.limit else None


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
