"""The graph of an agent: the agent itself and all agents that it can start or hand its thread to, as defined now."""

import logging

from pydantic import ValidationError

from domain.agents.definition import AgentDefinition
from store import agents
from store.database import Connection, Pool

log = logging.getLogger("errand.store")
MOST = 200  # agents: a graph could include all agents of a tenant


async def reachable(pool: "Pool | Connection", tenant: str, agent: AgentDefinition) -> dict[str, AgentDefinition]:
    found = {agent.name: agent}
    waiting = [agent]
    while waiting:
        for name in waiting.pop().references:
            if name in found or len(found) >= MOST:
                continue
            if (known := await _readable(pool, tenant, name)) is not None:
                found[name] = known
                waiting.append(known)
    return found


async def _readable(pool: "Pool | Connection", tenant: str, name: str) -> AgentDefinition | None:
    """None also if the definition can no longer be read: the agents that refer to it work without it."""
    try:
        known = await agents.current(pool, tenant, name)
    except ValidationError:
        log.exception("the definition of agent %s cannot be read", name)
        return None
    return known[1] if known else None
