"""The values that a thread has: those given to it, those inherited from the thread that started it, those of its tenant
and of the deployment, its agent's defaults, and those of the prompt that declares them.

Values are stored by name. `agent:name` holds a value for a subagent's own thread and hides it from all others; `:name`
holds a value that no agent of the graph names, for the tools of its own thread; `*:name` and `**:name` hold values that
a tenant or the deployment sets for all threads.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from domain.agents.definition import AgentDefinition, SubagentTool, Variable, VariableKind
from domain.conversations.subagents import is_enabled
from domain.errors import Invalid
from domain.frozen import Frozen
from domain.redaction import PREFIX, is_sealed
from domain.sealing import KeyRing

Values = Mapping[str, str]
Graph = Mapping[str, AgentDefinition]  # an agent and all that it can reach, by name


class NeededVariable(Frozen):
    """A variable whose value an agent needs before it can begin."""

    name: str
    agent: str
    description: str
    kind: VariableKind
    scoped: bool = False
    missing: bool  # it has no value


NOBODY = ""  # used instead of an agent's name: no agent names the variable
_SHOWN = {"description", "kind", "scoped"}  # of a variable, to people who give its value
TENANT, DEPLOYMENT = "*", "**"  # instead of an agent's name: for all agents, even if scoped


def held_name(agent: str, name: str) -> str:
    return f"{agent}:{name}"


def find_unnamed(values: Values) -> dict[str, str]:
    """The values that no agent names. They are secrets of the thread for which they were set."""
    return _values_of(values, NOBODY)


def name_shared(tenants: Values, deployments: Values) -> dict[str, str]:
    """Values of a tenant and of the deployment, under the names that a thread stores them by."""
    kept_as = {TENANT: tenants, DEPLOYMENT: deployments}
    return {held_name(owner, name): value for owner, values in kept_as.items() for name, value in values.items()}


def drop_shared(values: Values) -> dict[str, str]:
    return {name: value for name, value in values.items() if _owner(name) not in (TENANT, DEPLOYMENT)}


Level = Literal["thread", "tenant", "deployment", "agent", "prompt"]


def values_by_level(agent: AgentDefinition, values: Values) -> dict[Level, dict[str, str]]:
    """The values that a thread of this agent has, by their source. If two have the same name, the first one counts."""
    variables = {**agent.all_variables, **agent.variables}
    return {
        "thread": {name: value for name, value in values.items() if ":" not in name},
        "tenant": _values_of(values, TENANT),
        "deployment": _values_of(values, DEPLOYMENT),
        "agent": dict(agent.env),
        "prompt": {name: one.default for name, one in variables.items() if one.default is not None},
    }


def resolve_values(agent: AgentDefinition, values: Values) -> dict[str, str]:
    """Every value that a thread of this agent has, including values that the agent does not name."""
    return {name: value for level in reversed(values_by_level(agent, values).values()) for name, value in level.items()}


def _owner(name: str) -> str | None:
    return name.rpartition(":")[0] if ":" in name else None


def _values_of(values: Values, owner: str) -> dict[str, str]:
    return {name.rpartition(":")[2]: value for name, value in values.items() if _owner(name) == owner}


def tool_values(agent: AgentDefinition, values: Values) -> dict[str, str]:
    """The values that the agent's tools receive: those that the agent names, and those that no agent names."""
    named = {name: value for name, value in resolve_values(agent, values).items() if name in agent.settable_variables}
    return {**find_unnamed(values), **named}


def model_values(agent: AgentDefinition, values: Values) -> dict[str, str]:
    """Those of the agent's variables that are neither secret nor meant for this thread or for one subagent alone."""
    hidden = _runtime_only(agent)
    return {
        name: value
        for name, value in resolve_values(agent, values).items()
        if name in agent.variables and name not in hidden and not is_sealed(value)
    }


def hidden_names(agents: Iterable[AgentDefinition], values: Values) -> set[str]:
    """The names of values that must never reach a model."""
    return {
        name
        for agent in agents
        for name, value in resolve_values(agent, values).items()
        if is_sealed(value) or name in _runtime_only(agent)
    }


def _runtime_only(agent: AgentDefinition) -> set[str]:
    own = {name for name, one in agent.variables.items() if one.hidden}
    hints = {hint for tool in agent.subagent_tools for hint in tool.hints}
    return (own | {name for tool in agent.subagent_tools for name in tool.handed_over}) - hints


def graph_variables(graph: Graph) -> dict[str, Variable]:
    """The variables that may be set for an agent and for every agent it can reach. A secret in one is a secret in
    all."""
    found: dict[str, Variable] = {}
    for agent in graph.values():
        for name, variable in agent.settable_variables.items():
            if name not in found or variable.kind is VariableKind.SECRET:
                found[name] = variable
    return found


def inherit_values(
    values: Values, above: Sequence[AgentDefinition], child: AgentDefinition, tool: SubagentTool | None = None
) -> dict[str, str]:
    """The values of a child's thread. It gets scoped ones only if the tool hands them over or if they were given for
    this very agent. `above`: the agents of the session that starts it; the last one makes the call."""
    variables = child.all_variables
    scoped = {name for agent in above for name, one in agent.all_variables.items() if one.scoped}
    scoped |= {name for name, one in variables.items() if one.scoped}
    found = {name: value for name, value in values.items() if name not in scoped and _owner(name) != NOBODY}
    if tool is not None and tool.handed_over:
        known = resolve_values(above[-1], values)
        found |= {name: known[name] for name in tool.handed_over if name in known}
    for name in variables:
        if (held := found.pop(held_name(child.name, name), None)) is not None:
            found[name] = held
    return found


def pass_on_values(values: Values, parent: AgentDefinition, child: AgentDefinition) -> dict[str, str]:
    """Of the values that a parent's thread was given while both are live: those that its child gets too."""
    scoped = {name for agent in (parent, child) for name, one in agent.all_variables.items() if one.scoped}
    tools = [tool for view in parent.views for tool in view.subagent_tools if tool.name == child.name]
    handed = {name for tool in tools for name in tool.handed_over}
    plain = {name for name in values if name not in scoped and ":" not in name}
    return {name: value for name, value in values.items() if name in plain | handed}


def stored_names(values: Values, known: Mapping[str, Variable]) -> dict[str, str]:
    """Values under the names that a thread stores them by: the plain name, or `:name` if no agent names the
    variable."""
    return {name if name in known else held_name(NOBODY, name): value for name, value in values.items()}


def find_needed(child: AgentDefinition, values: Values, graph: Graph) -> list[NeededVariable]:
    """The variables without which the child, or a subagent that its tools can start, cannot begin. Each agent is looked
    at once: what it lacks on another way through the graph is asked for when it is created."""
    found: list[NeededVariable] = []
    seen, ahead = {child.name}, [(child, values)]
    for agent, given in ahead:  # which grows meanwhile
        known = resolve_values(agent, given)
        found += [
            NeededVariable(**one.model_dump(include=_SHOWN), name=name, agent=agent.name, missing=name not in known)
            for name, one in agent.all_variables.items()
            if one.required
        ]
        for tool in (tool for view in agent.views for tool in view.subagent_tools):
            if tool.name in graph and tool.name not in seen and is_enabled(tool, known):
                seen.add(tool.name)
                below = graph[tool.name]
                ahead.append((below, inherit_values(given, [agent], below, tool)))
    return found


def find_missing(definition: AgentDefinition, values: Values, graph: Graph) -> dict[str, str]:
    """The descriptions of the values that are to be asked for before the first step. What is scoped to a subagent is
    asked for when it is created."""
    return {
        one.name: one.description
        for one in find_needed(definition, values, graph)
        if one.missing and (one.agent == definition.name or not one.scoped)
    }


def store_given(child: str, needs: Iterable[NeededVariable], given: Values) -> dict[str, str]:
    """Given values as the child's thread stores them: its own by name, and those held for its subagents."""
    return {
        one.name if one.agent == child else held_name(one.agent, one.name): given[one.name]
        for one in needs
        if one.missing and one.name in given
    }


# Values of secret variables: sealed before they are stored, opened only for tools, never shown to the model.


UNKNOWN = Variable(description="no agent names it", required=False, kind=VariableKind.SECRET)
SHORTEST = 4  # characters of a secret: replacing shorter ones would make every text unreadable


def seal_secrets(
    keys: KeyRing,
    tenant: str,
    values: Mapping[str, str],
    variables: Mapping[str, Variable | NeededVariable],
    *,
    shortest: int = SHORTEST,
) -> dict[str, str]:
    """The values as they are stored. They are sealed for the tenant, because threads inherit values from each other."""
    sealed = dict(values)
    for name, value in values.items():
        if is_sealed(value):  # it would look like a sealed secret, and opening it would fail
            raise Invalid(f"{name} cannot begin with {PREFIX!r}.", type="unusable-value", variable=name)
        if (variable := variables.get(name)) is None or variable.kind is not VariableKind.SECRET:
            continue
        if len(value) < shortest:
            detail = f"{name} is a secret, so it needs at least {shortest} characters: it is hidden wherever it occurs."
            raise Invalid(detail, type="secret-too-short", variable=name)
        sealed[name] = keys.seal(value, tenant, "variable", name)
    return sealed


def seal_all(keys: KeyRing, tenant: str, values: Mapping[str, str]) -> dict[str, str]:
    """The values sealed whatever their kind, for a place where any of them may be a secret. Some may be sealed
    already."""
    return {
        name: value if is_sealed(value) else keys.seal(value, tenant, "variable", name)
        for name, value in values.items()
    }


def seal_for_thread(
    keys: KeyRing, tenant: str, values: Mapping[str, str], known: Mapping[str, Variable]
) -> dict[str, str]:
    """Values set for a thread, as they are stored. A value that no agent names is a secret that nobody can read
    back."""
    unknown = {name: UNKNOWN for name in values if name not in known}
    return stored_names(seal_secrets(keys, tenant, values, {**known, **unknown}), known)


def open_secrets(keys: KeyRing, tenant: str, values: Mapping[str, str]) -> dict[str, str]:
    """The secret values of a session's variables in plain text, for tools and for the redaction of their output."""
    return {
        name: keys.unseal(value, tenant, "variable", name.rpartition(":")[2])  # `agent:name` too
        for name, value in values.items()
        if is_sealed(value)
    }
