"""Which values a thread has: those given to it, those inherited from the thread that started it, its agent's defaults.

Values are kept by name. One that waits for a subagent's own thread is kept as `agent:name`, so that nobody else has it;
one that no agent of the graph names as `:name`, for the tools of its own thread.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from pydantic import BaseModel, ConfigDict

from domain.agents.definition import AgentDefinition
from domain.agents.prompt import Variable, VariableKind
from domain.agents.subagent_tool import SubagentTool
from domain.conversations.subagent import is_enabled
from domain.sealed_text import is_sealed

Values = Mapping[str, str]
Graph = Mapping[str, AgentDefinition]  # an agent and all that it can reach, by name


class NeededVariable(BaseModel):
    """A variable that an agent cannot begin without."""

    model_config = ConfigDict(frozen=True)

    name: str
    agent: str
    description: str
    kind: VariableKind
    scoped: bool = False
    missing: bool  # it has no value


NOBODY = ""  # in place of an agent: no agent names the variable


def held_for(agent: str, name: str) -> str:
    return f"{agent}:{name}"


def unnamed(values: Values) -> dict[str, str]:
    """The values that no agent names, which are secrets of the thread that they were set for."""
    mark = held_for(NOBODY, "")
    return {name.removeprefix(mark): value for name, value in values.items() if name.startswith(mark)}


def resolved(agent: AgentDefinition, values: Values) -> dict[str, str]:
    """Every value that a thread of this agent has, also those that the agent does not name."""
    return {**agent.env, **{name: value for name, value in values.items() if ":" not in name}}


def of_agent(agent: AgentDefinition, values: Values) -> dict[str, str]:
    """The values that the agent names, and those that nobody names: what its tools are given."""
    named = {name: value for name, value in resolved(agent, values).items() if name in agent.settable_variables}
    return {**unnamed(values), **named}


def shown_to_model(agent: AgentDefinition, values: Values) -> dict[str, str]:
    """Of the agent's variables: neither secrets, nor what is meant for this thread or a subagent's alone."""
    hidden = _runtime_only(agent)
    return {
        name: value
        for name, value in resolved(agent, values).items()
        if name in agent.variables and name not in hidden and not is_sealed(value)
    }


def hidden_from_model(agents: Iterable[AgentDefinition], values: Values) -> set[str]:
    """The names of values that must not reach a model by any way."""
    return {
        name
        for agent in agents
        for name, value in resolved(agent, values).items()
        if is_sealed(value) or name in _runtime_only(agent)
    }


def _runtime_only(agent: AgentDefinition) -> set[str]:
    own = {name for name, one in agent.variables.items() if one.hidden}
    hints = {hint for tool in agent.subagent_tools for hint in tool.hints}
    return (own | {name for tool in agent.subagent_tools for name in tool.handed_over}) - hints


def graph_variables(graph: Graph) -> dict[str, Variable]:
    """What may be given to an agent for itself and for all that it can reach. A secret anywhere is one everywhere."""
    found: dict[str, Variable] = {}
    for agent in graph.values():
        for name, variable in agent.settable_variables.items():
            if name not in found or variable.kind is VariableKind.SECRET:
                found[name] = variable
    return found


def kept(values: Values, graph: Graph) -> dict[str, str]:
    """The values that some agent of the graph can use."""
    names = {name for agent in graph.values() for name in agent.settable_variables}
    return {
        name: value
        for name, value in values.items()
        if name in names or (":" in name and name.split(":")[0] in (*graph, NOBODY))
    }


def inherited(
    values: Values,
    above: Collection[AgentDefinition],
    child: AgentDefinition,
    graph: Graph,
    tool: SubagentTool | None = None,
) -> dict[str, str]:
    """The values of a child's thread. Scoped ones cross only where the tool hands them over, or if they were given for
    this very agent. `above`: the agents of the session that starts it, the one that makes the call last."""
    scoped = {name for agent in (*above, child) for name, one in agent.all_variables.items() if one.scoped}
    found = {name: value for name, value in _named(kept(values, graph)).items() if name not in scoped}
    own = [*above][-1]
    known = resolved(own, values)
    found |= {name: known[name] for name in (tool.handed_over if tool else ()) if name in known}
    for name in child.all_variables:
        if (held := found.pop(held_for(child.name, name), None)) is not None:
            found[name] = held
    return found


def _named(values: Values) -> dict[str, str]:
    own = held_for(NOBODY, "")
    return {name: value for name, value in values.items() if not name.startswith(own)}


def passed_on(values: Values, parent: AgentDefinition, child: AgentDefinition, graph: Graph) -> dict[str, str]:
    """Of values that a parent's thread was given while both live: those that its child has too."""
    scoped = {name for agent in (parent, child) for name, one in agent.all_variables.items() if one.scoped}
    tools = [tool for view in parent.views for tool in view.subagent_tools if tool.name == child.name]
    handed = {name for tool in tools for name in tool.handed_over}
    plain = {name: value for name, value in kept(values, graph).items() if name not in scoped and ":" not in name}
    return plain | {name: value for name, value in values.items() if name in handed}


def stored_names(values: Values, known: Mapping[str, Variable]) -> dict[str, str]:
    """Values as a thread keeps them: by name, or as nobody's."""
    return {name if name in known else held_for(NOBODY, name): value for name, value in values.items()}


def needed(child: AgentDefinition, values: Values, graph: Graph) -> list[NeededVariable]:
    """What the child, and every subagent that its tools can start, cannot begin without."""
    found = {(one.agent, one.name): one for one in _needed(child, values, graph, frozenset())}
    return list(found.values())


def _needed(agent: AgentDefinition, values: Values, graph: Graph, seen: frozenset[str]) -> Iterator[NeededVariable]:
    known = resolved(agent, values)
    for name, one in agent.all_variables.items():
        if one.required:
            yield NeededVariable(
                name=name,
                agent=agent.name,
                description=one.description,
                kind=one.kind,
                scoped=one.scoped,
                missing=name not in known,
            )
    seen |= {agent.name}
    for tool in (tool for view in agent.views for tool in view.subagent_tools):
        child = graph.get(tool.name)
        if child is not None and child.name not in seen and is_enabled(tool, known):
            yield from _needed(child, inherited(values, [agent], child, graph, tool), graph, seen)


def given_for(child: str, needs: Iterable[NeededVariable], given: Values) -> dict[str, str]:
    """Given values, as the child's thread keeps them: its own by name, those of subagents held for them."""
    return {
        one.name if one.agent == child else held_for(one.agent, one.name): given[one.name]
        for one in needs
        if one.missing and one.name in given
    }
