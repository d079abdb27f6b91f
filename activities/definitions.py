"""Definitions: agent versions as workers use them, kept because a version never changes."""

from domain.agents.definition import AgentDefinition
from domain.sessions.session import AgentRef
from store import agents
from store.database import Pool

MOST_KEPT = 256


class Definitions:
    """Keeps the versions that were used last. Versions of a single session are read each time: there is no end of
    them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known: dict[AgentRef, AgentDefinition] = {}

    async def load(self, ref: AgentRef) -> AgentDefinition:
        found = self._known.pop(ref, None)
        if found is None:
            found = (await agents.load(self._pool, ref)).for_side(ref.side)
        if not agents.is_private(ref.owner):
            self._known[ref] = found  # the newest is last
            if len(self._known) > MOST_KEPT:
                del self._known[next(iter(self._known))]
        return found
