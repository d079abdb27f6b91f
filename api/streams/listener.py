"""One LISTEN connection per process. It wakes the streams that wait for events of a session or conversation."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from store import events
from store.database import TRANSIENT_ERRORS

log = logging.getLogger("errand.api")

# streams read every few seconds without notifications, so that nothing is lost meanwhile
RECONNECT_SECONDS = 1.0


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
                await events.listen(self._url, self._connected, self._notice)
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

    def _connected(self) -> None:
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
