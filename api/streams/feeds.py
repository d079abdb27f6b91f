"""Server-sent events: replay from the log, then live, the terminal event last; read at the reader's own pace."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from api.streams.listener import EventListener
from domain.events import ENDED, Recorded
from store import events
from store.database import TRANSIENT_ERRORS, Pool

PAGE = 200
LOOK_SECONDS = 5.0  # re-read without being woken, and see whether the key still holds
KEEPALIVE_SECONDS = 15.0
RETRY = b"retry: 1000\n\n"
_LAST = frozenset(event.type for event in ENDED.values())


def public(event: Recorded) -> dict[str, Any]:
    """An event as callers see it."""
    at = event.at.isoformat()
    return {"type": event.type, "seq": event.seq, "session_id": event.session_id, "at": at, **event.data}


def public_in_conversation(event: Recorded) -> dict[str, Any]:
    """The same with its number over all sessions; `session_id` says whose it is."""
    return {**public(event), "conv_seq": event.conv_seq}


@dataclass(frozen=True)
class Feed:
    """Whose events: of one session until its terminal one, or of a whole conversation without an end."""

    tenant: str
    id: str
    conversation: bool = False

    async def read(self, pool: Pool, after: int, limit: int) -> list[Recorded]:
        read = events.of_conversation if self.conversation else events.of_session
        return await read(pool, self.tenant, self.id, after, limit)

    def number(self, event: Recorded) -> int:
        return event.conv_seq if self.conversation else event.seq

    def show(self, event: Recorded) -> dict[str, Any]:
        return public_in_conversation(event) if self.conversation else public(event)

    def frame(self, event: Recorded) -> bytes:
        return format_sse_event(data_str=json.dumps(self.show(event)), event=event.type, id=str(self.number(event)))

    def opening(self, after: int) -> bytes:
        return RETRY

    async def page(self, pool: Pool, after: int) -> "Page":
        found = await self.read(pool, after, PAGE)
        return Page(
            frames=b"".join(map(self.frame, found)),
            last=self.number(found[-1]) if found else after,
            full=len(found) == PAGE,
            ended=not self.conversation and any(event.type in _LAST for event in found),
        )


@dataclass(frozen=True)
class Page:
    frames: bytes
    last: int
    full: bool
    ended: bool


class Readable(Protocol):
    """What can be followed; equal ones share their reads."""

    @property
    def tenant(self) -> str: ...

    @property
    def id(self) -> str: ...

    def opening(self, after: int) -> bytes: ...

    async def page(self, pool: Pool, after: int) -> Page: ...


class Pages:
    """Pages of the log as frames; viewers who stand at the same place share one read."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._reading: dict[tuple[Readable, int], asyncio.Task[Page]] = {}

    async def after(self, feed: Readable, seq: int) -> Page:
        key = (feed, seq)
        task = self._reading.get(key)
        if task is None:
            task = self._reading[key] = asyncio.create_task(feed.page(self._pool, seq))
            task.add_done_callback(lambda _: self._reading.pop(key, None))
        return await asyncio.shield(task)  # a viewer who leaves must not take the read from the others


async def follow(
    pages: Pages, wake: EventListener, feed: Readable, seq: int, still_allowed: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Everything after `seq`, until the terminal event, the end of this process or of the key."""
    loop = asyncio.get_running_loop()
    yield feed.opening(seq)
    spoke = loop.time()
    with wake.watching(feed.tenant, feed.id) as bell:
        while not wake.draining:
            bell.clear()  # before the read, so that news during it rings again
            try:
                page = await pages.after(feed, seq)
            except TRANSIENT_ERRORS:
                page = Page(b"", seq, False, False)
            if page.frames:
                yield page.frames
                seq, spoke = page.last, loop.time()
            if page.ended:
                return
            if page.full or await _rung(bell):
                continue
            if not await _allowed(still_allowed):
                return
            if loop.time() - spoke >= KEEPALIVE_SECONDS:
                yield KEEPALIVE_COMMENT
                spoke = loop.time()


async def _rung(bell: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await bell.wait()
    except TimeoutError:
        return False
    return True


async def _allowed(still_allowed: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await still_allowed()
    except TRANSIENT_ERRORS:
        return True  # the database will say when it is back
