"""Waits for the end of a session, for a caller who asks for its result early."""

import asyncio
import contextlib

from api.auth import Call
from api.http.lookup import session_of
from api.http.problems import Unauthenticated
from api.streams.feeds import LOOK_SECONDS
from api.streams.sse import still_allowed
from store.sessions import SessionRow

READ_SECONDS = 0.1  # between two reads: while a model streams, most notifications are about something else


async def await_ending(call: Call, session: SessionRow, seconds: float) -> SessionRow:
    """Return the session once it has ended; or its present state after this many seconds or when this process stops.

    Meanwhile the caller holds one of its stream slots, but no database connection.
    """
    if session.status.terminal:
        return session
    slots, listener, loop = call.services.slots, call.services.listener, asyncio.get_running_loop()
    slots.check(call.tenant, call.caller.created_by)
    deadline = loop.time() + seconds
    with slots.taken(call.tenant, call.caller.created_by), listener.watching(call.tenant, session.id) as news:
        while True:
            news.clear()  # before the read, so that an event during the read sets it again
            read_at, session = loop.time(), await session_of(call, session.id)
            left = deadline - loop.time()
            if session.status.terminal or listener.draining or left <= 0:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_SECONDS)):
                    await news.wait()
            await asyncio.sleep(read_at + READ_SECONDS - loop.time())
    if not await still_allowed(call):  # the key was revoked in between
        raise Unauthenticated()
    return session
