"""One LISTEN connection per process: it wakes whoever waits for news of a session or a conversation."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from store import events
from store.database import TRANSIENT_ERRORS

log = logging.getLogger("errand.api")

RECONNECT_SECONDS = 1.0


class EventListener:
    """A wake-up is only a hint: readers re-read PostgreSQL on it, and now and then without it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._bells: defaultdict[tuple[str, str], set[asyncio.Event]] = defaultdict(set)
        self.draining = False
        self.listening = False

    async def run(self) -> None:
        """Listen for ever, reconnecting whenever the database was away."""
        while True:
            try:
                await events.listen(self._url, self._connected, self._notice)
                log.warning("lost the connection that listens for events; reconnecting")
            except TRANSIENT_ERRORS:
                pass
            except Exception:  # whatever it is, readers need somebody who listens
                log.exception("cannot listen for events")
            self.listening = False
            await asyncio.sleep(RECONNECT_SECONDS)

    @contextmanager
    def watching(self, tenant: str, id: str) -> Iterator[asyncio.Event]:
        """A bell that rings when the session or conversation has news, or for the id `*` the tenant's feed."""
        bell = asyncio.Event()
        bells = self._bells[tenant, id]
        bells.add(bell)
        try:
            yield bell
        finally:
            bells.discard(bell)
            if not bells:
                self._bells.pop((tenant, id), None)

    def drain(self) -> None:
        """This process is about to end: open streams end too, and their readers resume elsewhere."""
        self.draining = True
        self._ring_all()

    def _connected(self) -> None:
        self.listening = True
        self._ring_all()  # whatever was said while nobody listened

    def _ring_all(self) -> None:
        for bells in self._bells.values():
            for bell in bells:
                bell.set()

    def _notice(self, tenant: str, conversation_id: str, session_id: str) -> None:
        for id in {conversation_id, session_id}:
            for bell in self._bells.get((tenant, id), ()):
                bell.set()
