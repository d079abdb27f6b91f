"""Limits how many event streams one caller may keep open at this process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from domain.errors import TooMany

RETRY_SECONDS = 5


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
    def taken(self, tenant: str, caller: str) -> Iterator[None]:
        self._open[tenant, caller] += 1
        try:
            yield
        finally:
            self._open[tenant, caller] -= 1
            # or the counter would keep an entry for every key that ever opened a stream
            if not self._open[tenant, caller]:
                del self._open[tenant, caller]
