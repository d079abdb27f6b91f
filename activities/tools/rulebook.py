"""The rulebook: the layers of rules that bind a line of a session."""

from activities.runtime.definitions import Definitions
from domain.policy.rules import Rule
from domain.sessions.session import AgentRef, SessionRef
from store import sessions
from store.database import Pool


class Rulebook:
    def __init__(self, pool: Pool, definitions: Definitions) -> None:
        self._pool = pool
        self._definitions = definitions

    async def layers(self, ref: SessionRef, agents: list[AgentRef]) -> list[list[Rule]]:
        """Of each agent from the session's own to the line's, then of the task and of whoever started it."""
        session = await sessions.get(self._pool, ref.tenant, ref.session_id)
        assert session is not None
        return [*[(await self._definitions.load(agent)).permissions for agent in agents], *session.rules]
