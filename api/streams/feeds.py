"""Event feeds of a session, a conversation or a tenant: first the stored events, then new ones as they happen.

Each reader reads the log at its own pace, so a slow one does not delay the others. `EventListener` wakes them, `follow`
is what one reader gets, and `StreamSlots` bounds how many there are.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from errand import models
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from api.http.problems import Unreadable
from domain.errors import Conflict, TooMany
from domain.events import ENDED, Recorded
from store import events, notices
from store.database import TRANSIENT_ERRORS, Pool

log = logging.getLogger("errand.api")
PAGE = 200
LOOK_SECONDS = 5.0  # how often to read again without a notification, and to check that the key is still valid
# proxies often close a connection after 30 or 60 silent seconds
KEEPALIVE_SECONDS = 15.0
# streams read every few seconds without notifications, so that nothing is lost meanwhile
RECONNECT_SECONDS = 1.0
RETRY_SECONDS = 5
_LAST = frozenset(event.type for event in ENDED.values())


@dataclass(frozen=True)
class Page:
    frames: bytes
    last: int
    full: bool
    ended: bool


@dataclass(frozen=True)
class Feed:
    """The events of one session, up to its terminal event, or of a whole conversation, without an end."""

    tenant: str
    id: str
    conversation: bool = False

    async def read(self, pool: Pool, after: int, limit: int) -> list[Recorded]:
        read = events.of_conversation if self.conversation else events.of_session
        return await read(pool, self.tenant, self.id, after, limit)

    def number(self, event: Recorded) -> int:
        return event.conv_seq if self.conversation else event.seq

    def show(self, event: Recorded) -> models.Event:
        return show_event(event, in_conversation=self.conversation)

    def frame(self, event: Recorded) -> bytes:
        return format_sse_event(
            data_str=self.show(event).model_dump_json(), event=event.type, id=str(self.number(event))
        )

    def opening(self, after: int) -> bytes:
        return open_stream(after)

    async def page(self, pool: Pool, after: int) -> "Page":
        found = await self.read(pool, after, PAGE)
        return Page(
            frames=b"".join(map(self.frame, found)),
            last=self.number(found[-1]) if found else after,
            full=len(found) == PAGE,
            ended=not self.conversation and any(event.type in _LAST for event in found),
        )


def show_event(event: Recorded, *, in_conversation: bool = False) -> models.Event:
    known = {"type": event.type, "seq": event.seq, "session_id": event.session_id, "at": event.at}
    numbered = {"conv_seq": event.conv_seq} if in_conversation else {}
    return models.Event.model_validate({**known, **event.data, **numbered})


def open_stream(after: int) -> bytes:
    """A position to resume from, even for a reader without any event."""
    return f"retry: 1000\nid: {after}\n\n".encode()


@dataclass(frozen=True)
class TenantFeed:
    """The notices of a tenant over all its sessions; with `created_by`, only those about sessions of that key."""

    tenant: str
    created_by: str | None = None
    id: str = "*"

    async def read(self, pool: Pool, after: int, limit: int = PAGE) -> tuple[list[models.Notice], int]:
        """The next notices, and the number after which a reader continues: also after those that it does not get."""
        _, newest = await notices.ends(pool, self.tenant) if self.created_by is not None else (0, 0)
        found = await notices.after(pool, self.tenant, after, limit, self.created_by)
        last = found[-1].number if found else after
        return found, last if len(found) == limit else max(last, newest)

    def opening(self, after: int) -> bytes:
        return open_stream(after)

    async def page(self, pool: Pool, after: int) -> Page:
        found, last = await self.read(pool, after)
        frames = [format_sse_event(data_str=one.model_dump_json(), event=one.type, id=str(one.number)) for one in found]
        if last > (found[-1].number if found else after):
            frames.append(open_stream(last))
        return Page(b"".join(frames), last, full=len(found) == PAGE, ended=False)


def read_cursor(text: str, last: int) -> int:
    """The number of an event, after which a reader continues."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise Unreadable(400, "cursor-invalid", "A cursor is a number: 0 or more.")
    if int(text) > last:
        raise Conflict("The cursor is ahead of the log; start again without one.", type="cursor-ahead", last=last)
    return int(text)


async def tenant_position(pool: Pool, tenant: str, given: str | None) -> int:
    """The number after which a reader continues; without a cursor, the newest."""
    first, last = await notices.ends(pool, tenant)
    text = (given or "").strip()
    after = read_cursor(text, last) if text else last
    # zero is not expired: it asks for all that is kept
    if 0 < after < first and text:
        raise Unreadable(410, "cursor-expired", "The next notices were removed; start again with 0.", first=first)
    return after


class Readable(Protocol):
    """A feed that can be followed."""

    @property
    def tenant(self) -> str: ...

    @property
    def id(self) -> str: ...

    def opening(self, after: int) -> bytes: ...

    async def page(self, pool: Pool, after: int) -> Page: ...


class EventListener:
    """A notification is only a hint: readers then read PostgreSQL, and also every few seconds without a hint."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._watchers: defaultdict[tuple[str, str], set[asyncio.Event]] = defaultdict(set)
        self.draining = False
        self.listening = False

    async def run(self) -> None:
        """Listen until cancelled; reconnect when the connection is lost."""
        while True:
            try:
                await events.listen(self._url, self._note_connected, self._notice)
                log.warning("lost the connection that listens for events; reconnecting")
            except TRANSIENT_ERRORS:
                pass
            except Exception:  # whatever the error, the streams still need a listener
                log.exception("cannot listen for events")
            self.listening = False
            await asyncio.sleep(RECONNECT_SECONDS)

    @contextmanager
    def watching(self, tenant: str, id: str) -> Iterator[asyncio.Event]:
        """An event that is set when the session or conversation has news; the id `*` means the tenant's feed."""
        news = asyncio.Event()
        watchers = self._watchers[tenant, id]
        watchers.add(news)
        try:
            yield news
        finally:
            watchers.discard(news)
            # or the dictionary would keep an entry for every session that was ever watched
            if not watchers:
                self._watchers.pop((tenant, id), None)

    def drain(self) -> None:
        """End all open streams, because this process is about to stop; their readers resume elsewhere."""
        self.draining = True
        self._wake_all()

    def _note_connected(self) -> None:
        self.listening = True
        self._wake_all()  # events may have been written while the connection was lost

    def _wake_all(self) -> None:
        for watchers in self._watchers.values():
            for news in watchers:
                news.set()

    def _notice(self, tenant: str, conversation_id: str, session_id: str) -> None:
        for id in {conversation_id, session_id}:
            for news in self._watchers.get((tenant, id), ()):
                news.set()


class StreamSlots:
    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[tuple[str, str]] = Counter()

    def check(self, tenant: str, caller: str) -> None:
        """Raise TooMany unless the caller may open one more."""
        if self._open[tenant, caller] >= self._most:
            detail = f"This key may keep {self._most} streams open."
            raise TooMany(detail, type="too-many-streams", retry_after=RETRY_SECONDS)

    @contextmanager
    def take(self, tenant: str, caller: str) -> Iterator[None]:
        self._open[tenant, caller] += 1
        try:
            yield
        finally:
            self._open[tenant, caller] -= 1
            # or the counter would keep an entry for every key that ever opened a stream
            if not self._open[tenant, caller]:
                del self._open[tenant, caller]


async def follow(
    pool: Pool, listener: EventListener, feed: Readable, seq: int, still_allowed: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Everything after `seq`, until the terminal event, the end of this process, or the end of the key's validity."""
    loop = asyncio.get_running_loop()
    yield feed.opening(seq)
    sent_at = checked_at = loop.time()
    with listener.watching(feed.tenant, feed.id) as news:
        while not listener.draining:
            # by the clock: others may wake this stream all the time, with nothing for its reader
            if loop.time() - checked_at >= LOOK_SECONDS:
                with suppress(*TRANSIENT_ERRORS):  # asked again when the database is back
                    if not await still_allowed():
                        return
                checked_at = loop.time()
            if loop.time() - sent_at >= KEEPALIVE_SECONDS:
                yield KEEPALIVE_COMMENT
                sent_at = loop.time()
            news.clear()  # before the read, so that an event during the read sets it again
            try:
                page = await feed.page(pool, seq)
            except TRANSIENT_ERRORS:
                # the stream stays open and reads again, because a reconnecting client would not fare better
                page = Page(b"", seq, False, False)
            if page.frames:
                yield page.frames
                seq, sent_at = page.last, loop.time()
            if page.ended:
                return
            if page.full:
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await news.wait()
