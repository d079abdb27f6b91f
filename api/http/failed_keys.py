"""Limits how often an address may present invalid keys. The memory for that is bounded."""

import hashlib
import math
import time
from collections import OrderedDict

from domain.errors import TooMany

MOST = 60  # per address and minute
WINDOW_SECONDS = 60.0
# an attacker with many addresses must not fill the memory; the oldest are forgotten first
ADDRESSES = 10_000
KEYS = 10_000


class FailedKeys:
    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()  # address -> begin of its window, count
        self._valid: OrderedDict[bytes, None] = OrderedDict()

    def check(self, address: str, key: str) -> None:
        """Refuse an address that failed too often. Keys that were valid before still pass, because others may share the
        address."""
        began, count = self._failures.get(address, (0.0, 0))
        left = began + WINDOW_SECONDS - time.monotonic()
        if count >= MOST and left > 0 and _digest(key) not in self._valid:
            raise TooMany("Too many invalid keys came from this address.", retry_after=math.ceil(left))

    def failed(self, address: str) -> None:
        now = time.monotonic()
        # popped and put back, so that the address moves to the end of the order
        began, count = self._failures.pop(address, (now, 0))
        self._failures[address] = (began, count + 1) if now < began + WINDOW_SECONDS else (now, 1)
        if len(self._failures) > ADDRESSES:
            self._failures.popitem(last=False)

    def succeeded(self, key: str) -> None:
        digest = _digest(key)
        self._valid[digest] = None
        self._valid.move_to_end(digest)
        if len(self._valid) > KEYS:
            self._valid.popitem(last=False)


def _digest(key: str) -> bytes:
    # digests, so that no dump of this process's memory shows keys from here
    return hashlib.sha256(key.encode(errors="replace")).digest()
