"""Loads and checks agent definitions and the price table, and writes definitions as files."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agents import front_matter
from agents.problems import AgentFileError, FieldProblem, problems_of
from domain.agents.definition import AgentDefinition, Mode
from domain.agents.prices import PriceTable
from domain.external_tool import tool_problems
from domain.json_schema import schema_problems
from domain.policy.rules import names_a_tool

__all__ = [
    "AgentFileError",
    "FieldProblem",
    "load_agents",
    "load_prices",
    "parse_agent",
    "subagent_problems",
    "to_markdown",
]

MAX_FILE_CHARS = 262_144
Model = TypeVar("Model", bound=BaseModel)


def load_agents(folder: Path, tools: Collection[str]) -> dict[str, AgentDefinition]:
    """Load every definition in the folder, by name; raise AgentFileError at the first invalid file."""
    agents = {}
    for path in sorted(folder.glob("*.md")):
        agents[path.stem] = parse_agent(_read(path), path.name, tools)
    for name, definition in agents.items():
        if problems := subagent_problems(definition, agents):
            raise AgentFileError(f"{name}.md", problems)
    return agents


def parse_agent(text: str, file: str, tools: Collection[str]) -> AgentDefinition:
    """Parse one definition. Its subagents are checked separately, once all definitions are known."""
    if len(text) > MAX_FILE_CHARS:
        raise AgentFileError(file, [FieldProblem("(file)", f"longer than {MAX_FILE_CHARS} characters")])
    try:
        fields, prompt = front_matter.split(text)
    except front_matter.FrontMatterError as error:
        raise AgentFileError(file, [FieldProblem("(front matter)", str(error))]) from None
    if "prompt" in fields:
        raise AgentFileError(file, [FieldProblem("prompt", "belongs below the front matter, not in it")])
    if not prompt.strip():
        raise AgentFileError(file, [FieldProblem("prompt", "missing: write it below the front matter")])
    definition = _validate({**fields, "prompt": prompt}, file, AgentDefinition)
    if problems := _definition_problems(definition, Path(file).stem, tools):
        raise AgentFileError(file, problems)
    return definition


def to_markdown(definition: AgentDefinition) -> str:
    """The text of a file that parse_agent reads back as the same definition."""
    fields = definition.model_dump(mode="json", exclude_defaults=True)
    prompt = fields.pop("prompt")
    return front_matter.join(fields, prompt)


def subagent_problems(definition: AgentDefinition, agents: dict[str, AgentDefinition]) -> list[FieldProblem]:
    startable = tuple(sorted(name for name, agent in agents.items() if agent.mode is not Mode.PRIMARY))
    return [
        FieldProblem("subagents", f"{name!r} has mode primary" if name in agents else f"no agent {name!r}", startable)
        for name in (reference.agent for reference in definition.subagents)
        if name not in startable
    ]


def load_prices(file: Path) -> PriceTable:
    try:
        fields = front_matter.load_yaml(_read(file))
    except front_matter.FrontMatterError as error:
        raise AgentFileError(file.name, [FieldProblem("(file)", str(error))]) from None
    return _validate(fields, file.name, PriceTable)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise AgentFileError(path.name, [FieldProblem("(file)", f"not UTF-8: {error.reason}")]) from None


def _validate(fields: dict[str, Any], file: str, model: type[Model]) -> Model:
    try:
        # strict JSON: "yes" is not true and "5" is not a number, but an enum may still be written as text
        return model.model_validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        raise AgentFileError(file, problems_of(error, model)) from None
    except (TypeError, ValueError) as error:
        raise AgentFileError(file, [FieldProblem("(front matter)", f"only JSON types are allowed: {error}")]) from None


def _definition_problems(definition: AgentDefinition, stem: str, tools: Collection[str]) -> list[FieldProblem]:
    found = []
    if definition.name != stem:
        found.append(FieldProblem("name", f"{definition.name!r} differs from the file's name", (stem,)))
    listed = {
        "tools": definition.tools,
        "subagents": [reference.agent for reference in definition.subagents],
        "fallback_models": definition.fallback_models,
    }
    for field, values in listed.items():
        found += [FieldProblem(field, f"{value!r} is listed twice") for value in _repeated(values)]
    unknown = [tool for tool in definition.tools if tool not in tools]
    found += [FieldProblem("tools", f"no tool {tool!r}", tuple(sorted(tools))) for tool in unknown]
    named = {*tools, *(tool.name for tool in definition.external_tools)}
    found += [
        FieldProblem(f"permissions.{index}.permission", f"no tool {rule.permission!r}", tuple(sorted(named)))
        for index, rule in enumerate(definition.permissions)
        if not names_a_tool(rule.permission, named)
    ]
    for field, schema in (("input_schema", definition.input_schema), ("output_schema", definition.output_schema)):
        if schema is not None:
            found += [FieldProblem(*one) for one in schema_problems(field, schema)]
    found += [FieldProblem(*one) for one in tool_problems("external_tools", definition.external_tools, tools)]
    return found


def _repeated(values: list[str]) -> list[str]:
    return sorted({value for value in values if values.count(value) > 1})
