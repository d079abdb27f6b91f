"""The graph of an agent: itself and all that it can start or hand its thread to, as they are defined now."""

from domain.agents.definition import AgentDefinition
from store import agents
from store.database import Connection, Pool

MOST = 200  # agents; a graph of one tenant's agents could be all of them


async def reachable(pool: "Pool | Connection", tenant: str, agent: AgentDefinition) -> dict[str, AgentDefinition]:
    found = {agent.name: agent}
    waiting = [agent]
    while waiting:
        for name in waiting.pop().references:
            if name in found or len(found) >= MOST:
                continue
            if (known := await agents.current(pool, tenant, name)) is not None:
                found[name] = known[1]
                waiting.append(known[1])
    return found
