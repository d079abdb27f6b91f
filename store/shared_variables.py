"""Values of variables that a tenant or the deployment sets for all threads, at the time when a session begins."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TypeVar

from domain.agents.variables import Graph, drop_shared, find_missing, graph_variables, name_shared, seal_secrets
from domain.errors import Invalid
from domain.redaction import is_sealed
from domain.sealing import KeyRing
from domain.sessions.new_session import NewSession
from store import agent_graph, agents, tenant_variables
from store.database import Pool

Session = TypeVar("Session", bound=NewSession)


class SharedVariables:
    def __init__(self, keys: KeyRing, deployment: Mapping[str, str]) -> None:
        self._keys = keys
        self._deployment = deployment

    async def of_graph(self, pool: Pool, tenant: str, graph: Graph) -> dict[str, str]:
        """The values for the variables of these agents, as a thread stores them. A tenant's secret is a secret to every
        agent; of the other values those are secrets that an agent declares so. Short ones are included, although
        redaction does not find them: a value that was set as a text, or for all tenants, must not block such an agent's
        tasks."""
        known = graph_variables(graph)
        tenants = await tenant_variables.values(pool, tenant) if known else {}
        return self._kept_as(tenant, graph, tenants)

    async def renewed(self, pool: Pool, tenant: str, session: Session) -> Session:
        """A session that was planned earlier, with the present values. Refused if it lacks one and may not ask."""
        own = drop_shared(session.variables)
        tenants = await tenant_variables.values(pool, tenant)
        if not tenants and not self._deployment and own == session.variables:
            return session
        definition = await agents.load(pool, session.agent_ref)
        graph = await agent_graph.reachable(pool, tenant, definition)
        values = {**own, **self._kept_as(tenant, graph, tenants)}
        missing = await asyncio.to_thread(find_missing, definition, values, graph)  # takes long for a large graph
        if missing and not session.may_ask:
            raise Invalid(f"The agent lacks values for {', '.join(missing)}.", type="missing-variables")
        return session.model_copy(update={"variables": values, "missing": missing})

    def _kept_as(self, tenant: str, graph: Graph, tenants: dict[str, str]) -> dict[str, str]:
        known = graph_variables(graph)
        texts = {name: value for name, value in tenants.items() if name in known and not is_sealed(value)}
        secrets = {name: value for name, value in tenants.items() if name in known and is_sealed(value)}
        deployments = {name: value for name, value in self._deployment.items() if name in known}
        seal = partial(seal_secrets, self._keys, tenant, variables=known, shortest=0)
        return name_shared({**secrets, **seal(texts)}, seal(deployments))
