"""Faults in the variables of a definition: defaults that show a secret, values handed to the wrong agent."""

from collections.abc import Iterator, Mapping

from agents.problems import FieldProblem
from domain.agents.definition import AgentDefinition
from domain.agents.prompt import Equipment, VariableKind
from domain.sealed_text import PREFIX, is_sealed


def variable_problems(definition: AgentDefinition, agents: Mapping[str, AgentDefinition]) -> Iterator[FieldProblem]:
    for name, one in definition.all_variables.items():
        if one.kind is VariableKind.SECRET and name in definition.env:
            yield FieldProblem(f"env.{name}", "is a secret: a definition is stored in plain text")
        if one.kind is VariableKind.SECRET and one.default is not None:
            yield FieldProblem(f"variables.{name}.default", "is a secret: a definition is stored in plain text")
        if is_sealed(definition.env.get(name)) or is_sealed(one.default):
            yield FieldProblem(f"variables.{name}", f"has a value that begins with {PREFIX!r}")
    listings: dict[str, Equipment] = {f"prompts.{name}.": prompt for name, prompt in definition.prompts.items()}
    for where, listing in ({"": definition} | listings).items():
        for index, tool in enumerate(listing.subagent_tools):
            child = agents.get(tool.name)
            known = child.all_variables if child else {}
            for name in (name for name in tool.handed_over if name in known and not known[name].scoped):
                reason = f"{name!r} is not scoped in {tool.name!r}: its model would see the value"
                yield FieldProblem(f"{where}subagent_tools.{index}.scoped_env", reason)
