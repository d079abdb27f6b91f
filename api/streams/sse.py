"""A feed as a response: the reader may vanish at any time, and nothing changes."""

from collections.abc import AsyncIterator, Mapping
from functools import partial

from fastapi import Response
from fastapi.sse import EventSourceResponse

from api.auth import Caller
from api.services import Services
from api.streams.feeds import Readable, follow
from store import keys

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def streaming(
    parts: Services, caller: Caller, feed: Readable, after: int = 0, headers: Mapping[str, str] | None = None
) -> Response:
    return EventSourceResponse(_counted(parts, caller, feed, after), headers={**_HEADERS, **(headers or {})})


async def _counted(parts: Services, caller: Caller, feed: Readable, after: int) -> AsyncIterator[bytes]:
    with parts.metrics.streams.track_inprogress():
        async for chunk in follow(parts.pages, parts.wake, feed, after, partial(still_allowed, parts, caller)):
            yield chunk


async def still_allowed(parts: Services, caller: Caller) -> bool:
    return caller.key_id is None or await keys.valid(parts.pool, caller.tenant, caller.key_id)
