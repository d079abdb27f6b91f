"""The audit log's chains: each entry holds the hash of the one before it, so that no entry can be changed or removed
unnoticed.

The database writes the entries (store/functions/append_audit.sql); anybody can check them with this module.
"""

import hashlib
from collections.abc import Iterable
from datetime import UTC

from errand.models import Break, ChainedEntry

from domain.frozen import Frozen

TENANT = ""  # the chain of entries outside conversations; it also vouches for the other chains
SEAL = "seal"
MISSING = "it is missing"


class Head(Frozen):
    """The last entry of a chain, as recorded outside the chain."""

    chain: str
    seq: int
    hash: str


def link(entry: ChainedEntry) -> str:
    """The hash of an entry; the next entry contains it. Each part is prefixed with its length so that none can
    shift."""
    at = entry.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    parts = [entry.previous, entry.tenant, entry.chain, str(entry.seq), at, entry.actor, entry.action]
    parts += [entry.session_id, entry.subject, entry.digest]
    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()


def seal_heads(entry: ChainedEntry) -> list[Head]:
    """The heads that an entry of the tenant's own chain vouches for."""
    if entry.chain != TENANT or entry.action != SEAL:
        return []
    lines = [line.rsplit(" ", 2) for line in entry.subject.split("\n")]
    return [Head(chain=chain, seq=int(seq), hash=known) for chain, seq, known in lines]


class Verifier:
    """Checks all entries of a tenant, ordered by chain and number, and then its heads. Stops at the first break."""

    def __init__(self, expected: str | None = None) -> None:
        self.entries = 0
        self.found: Break | None = None
        self._expected = expected  # a head that was recorded elsewhere
        self._last: dict[str, ChainedEntry] = {}
        self._vouched: dict[tuple[str, int], str] = {}

    def read(self, entries: Iterable[ChainedEntry]) -> None:
        for entry in entries:
            if (found := self._break(entry)) is not None:
                self.found = found
                return
            self._last[entry.chain] = entry
            if (entry.chain, entry.hash) == (TENANT, self._expected):
                self._expected = None
            self._vouched |= {(head.chain, head.seq): head.hash for head in seal_heads(entry)}
            self.entries += 1

    def _break(self, entry: ChainedEntry) -> Break | None:
        before = self._last.get(entry.chain)
        expected, previous = (before.seq + 1, before.hash) if before else (1, "")
        seq, problem = entry.seq, ""
        if entry.seq > expected:
            seq, problem = expected, MISSING
        elif entry.seq < expected:
            problem = "it is there twice"
        elif entry.previous != previous:
            problem = "it does not follow from the entry before it"
        elif entry.hash != link(entry):
            problem = "it was changed"
        elif self._vouched.pop((entry.chain, entry.seq), entry.hash) != entry.hash:
            problem = "it is not the entry that was sealed: the chain was rewritten"
        return Break(chain=entry.chain, seq=seq, problem=problem) if problem else None

    def end(self, heads: Iterable[Head]) -> None:
        """Check what shows only at the end: chains that are shorter than recorded, or missing."""
        self.found = self.found or self._end(heads)

    def _end(self, heads: Iterable[Head]) -> Break | None:
        for head in heads:
            last = self._last.get(head.chain)
            if last is None or last.seq < head.seq:
                return Break(chain=head.chain, seq=last.seq + 1 if last else 1, problem=MISSING)
            if (last.seq, last.hash) != (head.seq, head.hash):
                return Break(chain=head.chain, seq=last.seq, problem="it is not the entry that the chain ended with")
        for chain, _ in self._vouched:
            last = self._last.get(chain)
            return Break(chain=chain, seq=last.seq + 1 if last else 1, problem=f"{MISSING}, and it was sealed")
        if self._expected is not None:
            return Break(chain=TENANT, seq=1, problem="the head that was recorded elsewhere is not in it")
        return None

    @property
    def chains(self) -> int:
        return len(self._last)

    @property
    def head(self) -> str:
        """The hash of the last entry of the tenant's own chain. Kept elsewhere, it proves later that nothing was
        removed."""
        last = self._last.get(TENANT)
        return last.hash if last else ""
