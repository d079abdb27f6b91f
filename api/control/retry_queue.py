"""Later: what Temporal or its workers could not be told is told again in the background, until somebody hears it.

The rows hold all of it, so this is only faster: what dies with this process the sweeper finds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import islice

from api.http.problems import type_name

log = logging.getLogger("errand.api")

Deed = Callable[[], Awaitable[bool]]  # whether it was heard, or need not be any more

PAUSE_SECONDS = 1.0
AT_ONCE = 8  # so many are tried together: a few that nobody answers do not hold up the rest, nor press on who returns
MOST = 10_000  # remembered; beyond that it is the sweeper's


class RetryQueue:
    def __init__(self, pause_s: float = PAUSE_SECONDS) -> None:
        self._pause_s = pause_s
        self._waiting: dict[str, Deed] = {}
        self._bell = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, name: str, deed: Deed) -> None:
        """The same name is the same deed."""
        if name in self._waiting or len(self._waiting) < MOST:
            self._waiting[name] = deed
            self._bell.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            heard = False
            while self._waiting:
                if not heard:
                    await asyncio.sleep(self._pause_s)
                heard = await self._try_some()

    async def _try_some(self) -> bool:
        """Whether anybody heard; those nobody heard go to the end of the line."""
        batch = list(islice(self._waiting.items(), AT_ONCE))
        answers = await asyncio.gather(*(self._try(name, deed) for name, deed in batch))
        for (name, deed), heard in zip(batch, answers, strict=True):
            known = self._waiting.pop(name)
            if not heard or known is not deed:  # it was asked for anew meanwhile
                self._waiting[name] = known
        return any(answers)

    async def _try(self, name: str, deed: Deed) -> bool:
        try:
            return await deed()
        except Exception as error:  # whatever it is, it must not end the others' chance
            log.warning("%s is tried again (%s)", name, type_name(error))
            return False
