"""Calls to Temporal that failed because it was unreachable. They are retried in the background until they succeed.

The rows in the database hold the same facts, so this only saves time: after a crash the sweeper finds them.
"""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from itertools import islice

from api.http.problems import type_name
from workflows.client import permanent_refusal

log = logging.getLogger("errand.api")

Operation = Callable[[], Awaitable[bool]]  # True: it succeeded, or is no longer needed

# short, because people wait for these calls; one failed batch a second does not burden a server that returns
PAUSE_SECONDS = 1.0
AT_ONCE = 8  # several, so that slow ones do not delay the rest; few, to spare a server that has just returned
MOST = 10_000  # kept in memory; the sweeper handles further ones


class RetryQueue:
    def __init__(self, pause_s: float = PAUSE_SECONDS) -> None:
        self._pause_s = pause_s
        self._waiting: dict[str, Operation] = {}
        self._added = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, name: str, operation: Operation) -> None:
        """Retry an operation; it replaces a waiting one with the same name."""
        if name in self._waiting or len(self._waiting) < MOST:
            context = contextvars.copy_context()  # the request's context, which holds its tenant
            self._waiting[name] = lambda: asyncio.create_task(_run(operation), context=context)
            self._added.set()

    async def run(self) -> None:
        """Retry until cancelled; pause while nothing succeeds."""
        while True:
            await self._added.wait()
            # before the work, so that an addition during it wakes the next round
            self._added.clear()
            succeeded = False
            while self._waiting:
                if not succeeded:
                    await asyncio.sleep(self._pause_s)
                succeeded = await self._try_some()

    async def _try_some(self) -> bool:
        """Try the first few; those that fail move to the end of the queue. Return whether any succeeded."""
        batch = list(islice(self._waiting.items(), AT_ONCE))
        results = await asyncio.gather(*(self._try(name, operation) for name, operation in batch))
        for (name, operation), succeeded in zip(batch, results, strict=True):
            # popped even if it failed, so that it moves behind the others
            latest = self._waiting.pop(name)
            if not succeeded or latest is not operation:  # if it was replaced while it ran, the new one has not run yet
                self._waiting[name] = latest
        return any(results)

    async def _try(self, name: str, operation: Operation) -> bool:
        try:
            return await operation()
        except Exception as error:  # an error of one operation must not end the loop for the others
            if reason := permanent_refusal(error):  # the sweeper still checks the row from time to time
                log.error("%s was refused and will not be retried: %s", name, reason)
                return True
            log.warning("%s failed and will be retried (%s)", name, type_name(error))
            return False


async def _run(operation: Operation) -> bool:
    return await operation()
