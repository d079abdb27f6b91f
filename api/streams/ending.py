"""Waits for the end of a session, for a caller who asks for its result early."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from api.http.auth import Call
from api.http.lookup import session_of
from api.http.problems import Unauthenticated
from api.streams.feeds import LOOK_SECONDS
from api.streams.sse import still_allowed
from store.sessions import SessionRow

READ_SECONDS = 0.1  # between two reads: while a model streams, most notifications are about something else


Look = Callable[[SessionRow], Awaitable[bool]]  # whether the caller has what it waits for


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
    with slots.taken(call.tenant, call.caller.created_by), listener.watching(call.tenant, session.id) as news:
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
