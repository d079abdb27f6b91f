"""References between agents: exposed agents among the tools, and faults in the references."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from agents.problems import Catalogue, FieldProblem, variable_problems
from domain.agents.definition import AgentDefinition, Equipment, Mode, SubagentTool, Variable, VariableKind
from domain.sessions.session import SIDES

Listing = TypeVar("Listing", bound=Equipment)

# the arguments of an exposed agent without its own input_schema
DEFAULT_ARGUMENTS = ("message", "attachments", "name")


def with_agents_separated(definition: AgentDefinition, agents: Mapping[str, AgentDefinition]) -> AgentDefinition:
    """Move exposed agents out of `tools`: one with a human side becomes a handoff, any other a subagent."""
    prompts = {name: _apart(prompt, agents) for name, prompt in definition.prompts.items()}
    return _apart(definition, agents).model_copy(update={"prompts": prompts})


def _apart(listing: Listing, agents: Mapping[str, AgentDefinition]) -> Listing:
    exposed = [agents[name] for name in listing.tools if name in agents and agents[name].expose_as_tool]
    if not exposed:
        return listing
    names = {agent.name for agent in exposed}
    return listing.model_copy(
        update={
            "tools": [name for name in listing.tools if name not in names],
            "handoffs": [*listing.handoffs, *(agent.name for agent in exposed if not agent.dual)],
            "subagent_tools": [
                *listing.subagent_tools,
                *(SubagentTool(name=agent.name) for agent in exposed if agent.dual),
            ],
        }
    )


def graph_problems(
    definition: AgentDefinition, agents: Mapping[str, AgentDefinition], known: Catalogue
) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    if definition.expose_as_tool and definition.name in known.tools:
        found.append(FieldProblem("expose_as_tool", f"there is already a tool named {definition.name!r}"))
    listings: dict[str, Equipment] = {f"prompts.{name}.": prompt for name, prompt in definition.prompts.items()}
    for where, listing in ({"": definition} | listings).items():
        found += _subagent_tool_problems(listing, where, agents, definition)
        found += _handoff_problems(listing, where, agents, definition.dual)
        found += _delegation_problems(listing, agents, where)
    found += variable_problems(definition, agents)
    if cycle := immediate_cycle(definition.name, agents):
        found.append(FieldProblem("subagent_tools", f"immediate subagents start each other: {' → '.join(cycle)}"))
    return found


def immediate_cycle(name: str, agents: Mapping[str, AgentDefinition]) -> list[str]:
    """A cycle from an agent back to itself along immediate subagents; empty if there is none."""
    starter = {name: ""}  # by agent: who starts it; each agent is visited once, however many paths lead there
    waiting = [name]
    while waiting:
        current = waiting.pop()
        for follower in _immediate(agents[current]) if current in agents else ():
            if follower == name:
                way = [follower]
                while current:
                    way, current = [current, *way], starter[current]
                return way
            if follower not in starter:
                starter[follower] = current
                waiting.append(follower)
    return []


def _immediate(agent: AgentDefinition) -> list[str]:
    views = [agent.for_side(side) for side in SIDES]
    return list(dict.fromkeys(tool.name for view in views for tool in view.subagent_tools if tool.immediate))


def _delegation_problems(
    listing: Equipment, agents: Mapping[str, AgentDefinition], where: str
) -> Iterator[FieldProblem]:
    startable = tuple(sorted(name for name, agent in agents.items() if agent.mode is not Mode.PRIMARY))
    for reference in listing.subagents:
        name = reference.agent
        if name not in startable:
            reason = f"{name!r} has mode primary" if name in agents else f"no agent {name!r}"
            yield FieldProblem(f"{where}subagents", reason, startable)


def _subagent_tool_problems(
    listing: Equipment, where: str, agents: Mapping[str, AgentDefinition], definition: AgentDefinition
) -> Iterator[FieldProblem]:
    usable = tuple(sorted(name for name, agent in agents.items() if agent.dual and agent.expose_as_tool))
    for index, tool in enumerate(listing.subagent_tools):
        field = f"{where}subagent_tools.{index}"
        agent = agents.get(tool.name)
        if agent is None:
            yield FieldProblem(f"{field}.name", f"no agent {tool.name!r}", usable)
            continue
        if not agent.dual:
            yield FieldProblem(f"{field}.name", f"{tool.name!r} has a human side, so it cannot be a subagent", usable)
        elif not agent.expose_as_tool:
            yield FieldProblem(f"{field}.name", f"{tool.name!r} does not set expose_as_tool", usable)
        if tool.hidden and tool.immediate is None:
            yield FieldProblem(f"{field}.hidden", "a hidden subagent that is not immediate would never start")
        yield from _immediate_problems(tool, field, agent, {**definition.variables, **listing.variables})
        schema = agent.input_schema or {}
        arguments = schema.get("properties") if agent.input_schema else dict.fromkeys(DEFAULT_ARGUMENTS)
        for part in ("init_user_message_property", "init_attachments_property", "init_agent_name_property"):
            value = getattr(tool, part)
            if value is not None and isinstance(arguments, dict) and value not in arguments:
                reason = f"{tool.name!r} has no argument {value!r}"
                yield FieldProblem(f"{field}.{part}", reason, tuple(arguments))


def _immediate_problems(
    tool: SubagentTool,
    field: str,
    agent: AgentDefinition,
    variables: Mapping[str, Variable],
) -> Iterator[FieldProblem]:
    """Faults of an immediate subagent: nobody fills in its arguments, and its name is shown to a model."""
    if tool.immediate is None:
        return
    mapped = {tool.init_user_message_property or "message", tool.init_agent_name_property or "name"}
    required = (agent.input_schema or {}).get("required", [])
    if lacking := [str(name) for name in required if name not in mapped]:
        reason = f"{tool.name!r} needs the arguments {', '.join(lacking)}, which nobody gives when it starts at once"
        yield FieldProblem(f"{field}.immediate", reason)
    for part in ("name_env", "description_env"):
        name = getattr(tool.immediate, part)
        if name in variables and variables[name].kind is VariableKind.SECRET:
            yield FieldProblem(f"{field}.immediate.{part}", f"{name!r} is a secret, which no model may see")


def _handoff_problems(
    listing: Equipment, where: str, agents: Mapping[str, AgentDefinition], dual: bool
) -> Iterator[FieldProblem]:
    if dual and listing.handoffs:
        yield FieldProblem(f"{where}handoffs", "an agent without a human side cannot hand its thread over")
    usable = tuple(sorted(name for name, agent in agents.items() if not agent.dual and agent.expose_as_tool))
    for name in listing.handoffs:
        agent = agents.get(name)
        if agent is None:
            yield FieldProblem(f"{where}handoffs", f"no agent {name!r}", usable)
        elif agent.dual:
            yield FieldProblem(
                f"{where}handoffs", f"{name!r} has no human side: it is a subagent, not a handoff", usable
            )
        elif not agent.expose_as_tool:
            yield FieldProblem(f"{where}handoffs", f"{name!r} does not set expose_as_tool", usable)
