"""Faults in the two sides of one definition that can be found without the other agents."""

from collections.abc import Iterator, Sequence

from agents.catalogue import Catalogue
from agents.problems import FieldProblem
from domain.agents.definition import AgentDefinition
from domain.agents.side import SIDES, Side, SideKind, SideName
from domain.external_tool import tool_problems


def side_problems(
    definition: AgentDefinition, known: Catalogue, prompts: Sequence[str], broken: Sequence[str] = ()
) -> list[FieldProblem]:
    """`prompts`: the existing ones; `broken`: those with problems."""
    found: list[FieldProblem] = []
    for name in SIDES:
        side = definition.side_a if name == "a" else definition.side_b
        if side is not None:
            found += _kind_problems(definition, name, side, known, prompts, broken)
    if definition.side("a").human and definition.side("b").human:
        found.append(FieldProblem("side_a", "both sides are human: nobody would do the work", ("prompt", "handler")))
    uses_own_text = definition.side("a").prompt == definition.name and definition.name not in definition.prompts
    if uses_own_text and not definition.prompt:
        found.append(FieldProblem("prompt", "missing: write it below the front matter"))
    if definition.prompt and not uses_own_text:
        found.append(FieldProblem("prompt", "no side uses the text below the front matter"))
    unclear = {one.field for one in found}  # whose turns these are, and so which tools there are
    sides = [name for name in SIDES if not unclear & {f"side_{name}", f"side_{name}.prompt"}]
    found += [problem for name in sides for problem in _rule_problems(definition, name, known)]
    return [*found, *_declared_tool_problems(definition, known)]


def _kind_problems(
    definition: AgentDefinition,
    name: SideName,
    side: Side,
    known: Catalogue,
    prompts: Sequence[str],
    broken: Sequence[str],
) -> Iterator[FieldProblem]:
    field = f"side_{name}"
    kinds = [kind for kind in SideKind if getattr(side, kind)]
    own_text = name == "a" and bool(definition.prompt)
    if len(kinds) > 1 or (not kinds and not own_text):
        reason = f"has {' and '.join(kinds)}" if kinds else "does not name who takes the turns"
        yield FieldProblem(field, f"{reason}: exactly one is needed", tuple(SideKind))
    if side.prompt and side.prompt not in definition.prompts and not (own_text and side.prompt == definition.name):
        if side.prompt in broken:
            yield FieldProblem(f"{field}.prompt", f"prompts/{side.prompt}.md has problems")
        else:
            yield FieldProblem(f"{field}.prompt", f"no prompt {side.prompt!r} in agents/prompts", tuple(prompts))
    if side.handler and side.handler not in known.handlers:
        yield FieldProblem(f"{field}.handler", f"no handler {side.handler!r}", tuple(sorted(known.handlers)))
    if side.stop_tool_response_property and not side.stop_tool:
        yield FieldProblem(f"{field}.stop_tool_response_property", "needs a stop_tool")
    if side.human and (side.stop_tool or side.bindings()):
        yield FieldProblem(field, "a human side calls no tools, so it can have no stop tool and no bindings")


def _rule_problems(definition: AgentDefinition, name: SideName, known: Catalogue) -> Iterator[FieldProblem]:
    """Check that tools that end turns and sessions are tools of the same side, and that their properties are
    arguments."""
    side, view = definition.side(name), definition.for_side(name)
    if side.human:
        return
    schemas = {tool.name: tool.input_schema for tool in [*view.declared_tools, *definition.external_tools]}
    callable_names = sorted({*schemas, *(tool for tool in view.tools if tool in known.tools)})
    named = {"stop_tool": side.stop_tool} | {field: binding.name for field, binding in side.bindings().items()}
    for field, tool in named.items():
        if tool is not None and tool not in callable_names:
            reason = f"no tool {tool!r} on this side"
            yield FieldProblem(f"side_{name}.{field}", reason, tuple(callable_names))
    if side.session_stop and side.session_fail and side.session_stop.name == side.session_fail.name:
        yield FieldProblem(f"side_{name}.session_fail", "is the same tool as session_stop")
    properties = {
        f"{field}.{part}": (binding.name, getattr(binding, part))
        for field, binding in side.bindings().items()
        for part in ("message_property", "attachments_property")
    }
    properties["stop_tool_response_property"] = (side.stop_tool or "", side.stop_tool_response_property)
    for field, (tool, value) in properties.items():
        arguments = schemas.get(tool, {}).get("properties")
        if value is not None and isinstance(arguments, dict) and value not in arguments:
            reason = f"{tool!r} has no argument {value!r}"
            yield FieldProblem(f"side_{name}.{field}", reason, tuple(arguments))


def _declared_tool_problems(definition: AgentDefinition, known: Catalogue) -> Iterator[FieldProblem]:
    taken = {*known.tools, *(tool.name for tool in definition.external_tools)}
    listings = {"": definition.declared_tools} | {
        f"prompts.{prompt.name}.": prompt.declared_tools for prompt in definition.prompts.values()
    }
    for where, tools in listings.items():
        yield from (FieldProblem(*one) for one in tool_problems(f"{where}declared_tools", tools, taken))
