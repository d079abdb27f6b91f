"""Definitions: agent versions as workers use them, read once because a version never changes."""

from domain.agents.definition import AgentDefinition
from domain.sessions.session import AgentRef
from store import agents
from store.database import Pool


class Definitions:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known: dict[AgentRef, AgentDefinition] = {}

    async def load(self, ref: AgentRef) -> AgentDefinition:
        if ref not in self._known:
            definition = await agents.load(self._pool, ref)
            self._known[ref] = definition.for_side(ref.side)
        return self._known[ref]
