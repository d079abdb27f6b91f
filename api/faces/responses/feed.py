"""A response as a stream: the fold of its session's log, continued as the log grows."""

from contextlib import aclosing

from fastapi import Request
from pydantic_core import to_json

from api.faces.responses.errors import BadParameter
from api.faces.responses.ids import ResponseId
from api.faces.responses.objects import ResponseObject
from api.faces.responses.project import Fold
from api.faces.responses.view import FoundResponse, asked_in, find
from api.http.auth import Call
from api.http.lookup import check_kept
from api.streams.feeds import Page
from api.streams.readers import count_stream
from domain.errors import NotFound, Unavailable
from store import events
from store.database import Pool

PAGE = 500
FRAMES = 1_000  # more than one event of the log leads to


class ResponseFeed:
    """The feed of one reader: it folds the log from the beginning and sends the events after `starting_after`."""

    def __init__(self, found: FoundResponse, part: int, starting_after: int = -1) -> None:
        self.tenant, self.id = found.session.tenant, found.session.id
        self._found, self._part, self._shown = found, part, starting_after
        self._fold = Fold(found.facts)
        self._number = -1  # number of the last event of the part
        self._ready = b""
        self.last = 0

    @property
    def ended(self) -> bool:
        return len(self._fold.parts) >= self._part and self._fold.parts[self._part - 1].closed

    def response(self) -> ResponseObject:
        return self._found.shown(self._part, self._fold.parts[self._part - 1].state)

    async def load(self, pool: Pool) -> None:
        """Fold the existing log before the reader is answered: only then is it known whether its cursor can be
        right."""
        before = -1
        # a page without frames also moves `last`, so that its standstill means the end of the log
        while not self.ended and self.last > before:
            before = self.last
            self._ready += (await self.page(pool, before)).frames
        if len(self._fold.parts) < self._part:
            raise NotFound("There is no such response.")
        if self._shown > self._number:
            raise BadParameter("starting_after", "The response has no event of this number yet.")

    def opening(self, after: int) -> bytes:
        return b": errand\n\n" + self._ready  # a comment, because clients take any field for an event

    async def page(self, pool: Pool, after: int) -> Page:
        """The new frames since the last page. After a page without frames `after` is unchanged, but its events are
        folded."""
        if self.ended:
            return Page(b"", after, full=False, ended=True)
        found = await events.of_session(pool, self.tenant, self.id, self.last, PAGE)
        requests = await asked_in(pool, self.tenant, found)
        frames = b""
        for event in found:  # no await from here on, so that a failed read leaves the fold unchanged
            self._fold.feed(event, requests)
            # From the log's number, so that a cursor stays valid when the pieces of texts are deleted.
            self._number = max(self._number, (event.seq - 1) * FRAMES - 1)
            frames += self._frames()
            self.last = event.seq
        return Page(frames, self.last, full=len(found) == PAGE, ended=self.ended)

    def _frames(self) -> bytes:
        frames = b""
        for part in self._fold.parts:
            taken, part.events = part.events, []
            for one in taken if part.number == self._part else []:
                self._number += 1
                if self._number > self._shown:
                    whole = self._found.shown(self._part, one.state) if one.state else None
                    frames += b"event: %s\ndata: %s\n\n" % (
                        one.type.encode(),
                        to_json(one.wire(self._number, whole)),
                    )
        return frames


async def opened(
    call: Call, response_id: ResponseId | None, starting_after: int = -1, *, unstored: bool = False
) -> ResponseFeed:
    found = await find(call, response_id, unstored=unstored)
    assert response_id is not None
    check_kept(found.session)
    feed = ResponseFeed(found, response_id.part, starting_after)
    await feed.load(call.pool)
    return feed


async def awaited(call: Call, request: Request, feed: ResponseFeed) -> ResponseObject:
    """The response once it has ended. If its client disconnects, the wait ends, but the task continues."""
    async with aclosing(count_stream(call, feed, feed.last)) as chunks:
        async for _ in chunks:
            if feed.ended or await request.is_disconnected():
                break
    if not feed.ended:
        raise Unavailable("This process is about to stop; ask again for the same response.")
    return feed.response()
