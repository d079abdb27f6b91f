"""Work in the background on many things, of which one that fails holds up no other."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from domain.errors import Unavailable

log = logging.getLogger("errand.worker")

Item = TypeVar("Item")


async def one_by_one(what: str, items: Iterable[Item], work: Callable[[Item], Awaitable[object]]) -> list[Exception]:
    """Returns what went wrong. If Temporal is away, the rest is left to the next time."""
    failed: list[Exception] = []
    for item in items:
        try:
            await work(item)
        except Exception as error:
            log.warning("%s: %s: %r", what, item, error)
            failed.append(error)
            if isinstance(error, Unavailable):
                break
    return failed
