"""A short memory: what this worker has just committed, for the call that follows at once."""

import time
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_KEPT = 256
KEPT_SECONDS = 1.0  # later somebody may have changed it in the store


class ShortMemory(Generic[T]):
    """Facts by tenant and message node. They are handed out once, only to the run that committed them."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[float, str | None, T]] = OrderedDict()

    def keep(self, tenant: str, node: str, run: str | None, facts: T, read_at: float | None = None) -> bool:
        """False if they are old. `read_at`: when they were read, by the monotonic clock; None: now."""
        at = time.monotonic() if read_at is None else read_at
        if time.monotonic() - at > KEPT_SECONDS:
            return False
        self._known[tenant, node] = (at, run, facts)
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)
        return True

    def take(self, tenant: str, node: str, run: str | None) -> T | None:
        at, owner, facts = self._known.pop((tenant, node), (0.0, None, None))
        return facts if run == owner and time.monotonic() - at <= KEPT_SECONDS else None
