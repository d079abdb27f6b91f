"""The feed of a tenant: one numbered line of what its watchers should know, over all sessions."""

import json
from dataclasses import dataclass
from typing import Any

from fastapi.sse import format_sse_event

from api.auth import Call
from api.http.problems import Unreadable
from api.streams.feeds import PAGE, Page
from domain.errors import Conflict
from store import notices
from store.database import Pool
from store.notices import Told

_NAMES = {
    "task_started": "session_started",
    "task_completed": "session_completed",
    "task_failed": "session_failed",
    "task_cancelled": "session_cancelled",
}


@dataclass(frozen=True)
class TenantFeed:
    """With `created_by`, only what is about the sessions of that key."""

    tenant: str
    created_by: str | None = None
    id: str = "*"

    async def read(self, pool: Pool, after: int, limit: int = PAGE) -> list[Told]:
        return await notices.after(pool, self.tenant, after, limit, self.created_by)

    def opening(self, after: int) -> bytes:
        return f"retry: 1000\nid: {after}\n\n".encode()  # also one that hears nothing knows where to go on

    async def page(self, pool: Pool, after: int) -> Page:
        found = await self.read(pool, after)
        last = found[-1].number if found else after
        return Page(b"".join(map(_frame, found)), last, full=len(found) == PAGE, ended=False)


def feed_of(call: Call, mine: bool) -> TenantFeed:
    return TenantFeed(call.tenant, call.caller.created_by if mine else None)


def show(told: Told) -> dict[str, Any]:
    known = {"session_id": told.session_id, "conversation_id": told.conversation_id}
    return {
        "type": _NAMES.get(told.type, told.type),
        "number": told.number,
        **{name: value for name, value in known.items() if value is not None},
        "at": told.at.isoformat(),
        **told.data,
    }


def _frame(told: Told) -> bytes:
    shown = show(told)
    return format_sse_event(data_str=json.dumps(shown), event=shown["type"], id=str(told.number))


async def position(call: Call, given: str | None) -> int:
    """Where a reader goes on; without a cursor, from now."""
    first, last = await notices.ends(call.pool, call.tenant)
    text = (given or "").strip()
    if not text:
        return last
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise Unreadable(400, "cursor-invalid", "A cursor is the number of a notice: 0 or more.")
    if int(text) > last:
        raise Conflict("The cursor is ahead of the feed; begin again without one.", type="cursor-ahead", last=last)
    if 0 < int(text) < first:
        raise Unreadable(410, "cursor-expired", "What followed is no longer kept; begin again with 0.", first=first)
    return int(text)
