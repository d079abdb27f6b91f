"""Background work on many items: a failure of one must not delay the others."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from domain.errors import Unavailable

log = logging.getLogger("errand.worker")

Item = TypeVar("Item")


async def one_by_one(what: str, items: Iterable[Item], work: Callable[[Item], Awaitable[object]]) -> list[Exception]:
    """Run the work on each item; returns the errors. If Temporal is unreachable, the rest is left for the next time."""
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
