"""A feed as a response of server-sent events. A reader may disconnect at any time."""

from collections.abc import AsyncGenerator, Mapping
from functools import partial

from fastapi import Response
from fastapi.sse import EventSourceResponse

from api.http.auth import Call
from api.streams.feeds import Readable, follow
from store import keys

# the second one is for nginx, which would otherwise collect events before it passes them on
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def streaming(call: Call, feed: Readable, after: int = 0, headers: Mapping[str, str] | None = None) -> Response:
    call.services.slots.check(call.tenant, call.caller.created_by)
    return EventSourceResponse(counted(call, feed, after), headers={**_HEADERS, **(headers or {})})


async def counted(call: Call, feed: Readable, after: int) -> AsyncGenerator[bytes, None]:
    """The chunks of a feed, which uses one of the caller's stream slots."""
    # taken when the first chunk is read: a response that is never sent would not release it
    slot = call.services.slots.taken(call.tenant, call.caller.created_by)
    with slot, call.services.metrics.streams.track_inprogress():
        async for chunk in follow(
            call.services.pages, call.services.listener, feed, after, partial(still_allowed, call)
        ):
            yield chunk


async def still_allowed(call: Call) -> bool:
    if call.caller.cookie_id is not None and await keys.is_signed_out(call.pool, call.caller.cookie_id):
        return False
    # a caller without a key is the account that runs the server, which cannot be revoked
    return call.caller.key_id is None or await keys.valid(call.pool, call.tenant, call.caller.key_id)
