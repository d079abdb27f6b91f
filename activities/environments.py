"""What the commands of a task in an environment have: variables, hosts, credentials. A plain task opens none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from activities.egress import Guard
from activities.sandbox import Commands, NetworkPolicy
from domain.agents.definition import AgentDefinition
from domain.credentials import Credential, is_bound
from domain.environments import EnvironmentSpec, NetworkMode
from domain.policy.rules import Rule, host_permitted
from domain.sealing import KeyRing
from domain.sessions.session import SandboxMode, SessionRef
from store import credentials, environments
from store.database import Pool


@dataclass(frozen=True)
class OpenEnvironment:
    """An environment with its credentials, which exist in the memory of this worker only."""

    spec: EnvironmentSpec
    credentials: tuple[Credential, ...] = ()  # those of its repositories come first
    exposed: Mapping[str, str] = field(default_factory=dict)  # variables of commands that hold a credential

    @property
    def variables(self) -> dict[str, str]:
        """Of the agent's commands and of the criteria's."""
        return {**self.spec.variables, **self.exposed}

    @property
    def hidden(self) -> list[str]:
        """What is removed from the output of commands: a host may answer with what it was sent."""
        return [*(text for one in self.credentials for text in one.texts), *self.exposed.values()]

    def credential_for(self, url: str, first: str | None = None) -> Credential | None:
        """The one of this name, else the first that is bound to the address."""
        bound = [one for one in self.credentials if is_bound(one.rules, url)]
        return next((one for one in bound if one.name == first), bound[0] if bound else None)

    def setup_network(self, guard: Guard | None) -> NetworkPolicy | None:
        hosts = self.spec.setup_hosts
        if guard is None or not hosts:
            return None
        return NetworkPolicy(guard, lambda host: is_one_of(host, hosts), self.credentials)


def open_network(
    commands: Commands,
    agent: AgentDefinition,
    mode: SandboxMode | None,
    layers: list[list[Rule]],
    environment: OpenEnvironment | None = None,
) -> NetworkPolicy | None:
    """The network of an agent's commands. The operator must allow one, and the agent's definition or the environment
    give it; a task can only deny it. They reach the hosts that each of them names and the rules allow."""
    guard, tools, spec = commands.guard, commands.tools.values(), environment.spec if environment is not None else None
    given = agent.network if spec is None else spec.network is not NetworkMode.OFF
    if guard is None or not given or mode is SandboxMode.ISOLATED:
        return None
    patterns = spec.hosts if spec is not None and spec.hosts else ["*"]

    def permitted(host: str) -> bool:
        own = not agent.network or agent.may_reach(host)
        return own and is_one_of(host, patterns) and host_permitted(layers, host, tools)

    return NetworkPolicy(guard, permitted, environment.credentials if environment is not None else ())


class Environments:
    def __init__(self, pool: Pool, keys: KeyRing) -> None:
        self._pool = pool
        self._keys = keys

    async def open(self, ref: SessionRef, name: str) -> OpenEnvironment | None:
        """None if it was deleted. A credential that was deleted is left out: its requests are refused, its variable
        is not set."""
        spec = await environments.get(self._pool, ref.tenant, name)
        if spec is None:
            return None
        used, exposed = spec.used_credentials, spec.exposed
        named = [*used, *exposed.values()]
        found = await self.open_credentials(ref.tenant, ref.session_id, named) if named else {}
        variables = {
            variable: found[name].secret
            for variable, name in exposed.items()
            if name in found and found[name].may_be_read
        }
        return OpenEnvironment(spec, tuple(found[one] for one in used if one in found), variables)

    async def open_secrets(self, ref: SessionRef, spec: EnvironmentSpec) -> dict[str, Credential]:
        """The variables of the setup that hold credentials. Raises KeyError with the name of one that is gone."""
        found = await self.open_credentials(ref.tenant, ref.session_id, list(spec.secrets.values()))
        readable = {name: one for name, one in found.items() if one.may_be_read}
        return {variable: readable[name] for variable, name in spec.secrets.items()}

    async def open_credentials(self, tenant: str, session_id: str, names: Sequence[str]) -> dict[str, Credential]:
        return await credentials.open_named(self._pool, tenant, session_id, names, self._keys)


def is_one_of(host: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(host, one) for one in patterns)
