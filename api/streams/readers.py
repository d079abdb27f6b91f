"""What a reader gets: a feed as a response of server-sent events, or the session itself once it has ended. A reader may
disconnect at any time.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial

from fastapi import Response
from fastapi.sse import EventSourceResponse

from api.http.auth import Call
from api.http.lookup import session_of
from api.http.problems import Unauthenticated
from api.streams.feeds import LOOK_SECONDS, Readable, follow
from store import keys
from store.sessions import SessionRow

READ_SECONDS = 0.1  # between two reads: while a model streams, most notifications are about something else
# the second one is for nginx, which would otherwise collect events before it passes them on
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
Look = Callable[[SessionRow], Awaitable[bool]]  # whether the caller has what it waits for


def stream_feed(call: Call, feed: Readable, after: int = 0, headers: Mapping[str, str] | None = None) -> Response:
    call.services.slots.check(call.tenant, call.caller.created_by)
    return EventSourceResponse(count_stream(call, feed, after), headers={**_HEADERS, **(headers or {})})


async def count_stream(call: Call, feed: Readable, after: int) -> AsyncGenerator[bytes, None]:
    """The chunks of a feed, which uses one of the caller's stream slots."""
    # taken when the first chunk is read: a response that is never sent would not release it
    slot = call.services.slots.take(call.tenant, call.caller.created_by)
    with slot, call.services.metrics.streams.track_inprogress():
        async for chunk in follow(call.pool, call.services.listener, feed, after, partial(still_allowed, call)):
            yield chunk


async def await_ending(call: Call, session: SessionRow, seconds: float) -> SessionRow:
    """Return the session once it has ended; or its present state after this many seconds or when this process stops."""

    async def ended(now: SessionRow) -> bool:
        return now.status.terminal

    return session if session.status.terminal else await await_state(call, session, seconds, ended)


async def await_state(call: Call, session: SessionRow, seconds: float, look: Look) -> SessionRow:
    """Read the session whenever something happens to it, until `look` is satisfied, the time is over or this process
    stops. Meanwhile the caller holds one of its stream slots, but no database connection."""
    slots, listener, loop = call.services.slots, call.services.listener, asyncio.get_running_loop()
    slots.check(call.tenant, call.caller.created_by)
    deadline = loop.time() + seconds
    with slots.take(call.tenant, call.caller.created_by), listener.watching(call.tenant, session.id) as news:
        while True:
            news.clear()  # before the read, so that an event during the read sets it again
            read_at, session = loop.time(), await session_of(call, session.id)
            done = await look(session)
            left = deadline - loop.time()
            if done or listener.draining or left <= 0:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_SECONDS)):
                    await news.wait()
            await asyncio.sleep(read_at + READ_SECONDS - loop.time())
    if not await still_allowed(call):  # the key was revoked in between
        raise Unauthenticated()
    return session


async def still_allowed(call: Call) -> bool:
    if call.caller.cookie_id is not None and await keys.is_signed_out(call.pool, call.caller.cookie_id):
        return False
    # a caller without a key is the account that runs the server, which cannot be revoked
    return call.caller.key_id is None or await keys.valid(call.pool, call.tenant, call.caller.key_id)
