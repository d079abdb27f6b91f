"""Loads and checks agent definitions, prompts and the price table, and writes definitions as files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from agents.problems import (
    DEFAULT_ARGUMENTS,
    AgentFileError,
    Catalogue,
    FieldProblem,
    graph_problems,
    listings_of,
    mcp_problems,
    names_a_server,
    side_problems,
    validate_parts,
    with_agents_separated,
)
from domain import front_matter
from domain.agents.definition import (
    MCP_PREFIX,
    PROMPT_NAME_PATTERN,
    AgentDefinition,
    Equipment,
    PromptDefinition,
    own_tools,
    snake_case,
)
from domain.agents.models import PriceTable, Providers
from domain.agents.system_prompt import argument_names
from domain.amounts import format_count
from domain.json_object import JsonObject
from domain.json_schema import schema_problems
from domain.policy.rules import names_a_tool
from domain.skills import LOAD_SKILL, MOST_AGENT_CHARS, MOST_FILES, SKILL_FILE, SkillError, parse_skill

MAX_FILE_CHARS = 262_144
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class LoadedAgents:
    """The usable definitions of a folder, the faults of the others, and the names of all files."""

    agents: dict[str, AgentDefinition]
    errors: list[AgentFileError]
    names: frozenset[str] = frozenset()


def check_agents(folder: Path, known: Catalogue) -> LoadedAgents:
    """Load the usable definitions and collect every problem. An agent that needs a broken one is left out too."""
    errors: dict[str, AgentFileError] = {}
    parsed: dict[str, AgentDefinition] = {}
    found: dict[str, list[FieldProblem]] = {}
    files = sorted(folder.glob("*.md"))
    if not folder.is_dir():
        errors["."] = AgentFileError(str(folder), [FieldProblem("(folder)", "does not exist")])
    for path in sorted((folder / "prompts").glob("*.md")):
        try:
            parse_prompt(path)
        except AgentFileError as error:
            errors[error.file] = error
    for path in files:
        try:
            parsed[path.stem], found[path.stem] = read_agent(one_text(path), path.name, known)
        except AgentFileError as error:
            errors[error.file] = error
    agents = {name: with_agents_separated(definition, parsed) for name, definition in parsed.items()}
    for name, definition in agents.items():
        if problems := [*found[name], *definition_problems(definition, agents, known)]:
            errors[f"{name}.md"] = AgentFileError(f"{name}.md", problems)
    usable = {name: definition for name, definition in agents.items() if f"{name}.md" not in errors}
    names = frozenset(path.stem for path in files)
    return LoadedAgents(_without_missing(usable), list(errors.values()), names)


def complete(
    definition: AgentDefinition,
    others: Mapping[str, AgentDefinition],
    known: Catalogue,
    file: str,
    problems: Sequence[FieldProblem] = (),
) -> AgentDefinition:
    """Check a definition against the other agents; returns it with agents separated from tools. `problems`: known ones,
    which are reported with the others."""
    whole = with_agents_separated(definition, {**others, definition.name: definition})
    if found := [*problems, *definition_problems(whole, {**others, whole.name: whole}, known)]:
        raise AgentFileError(file, found)
    return whole


def load_agent(
    text: str, before: Sequence[FieldProblem], file: str, known: Catalogue, others: Mapping[str, AgentDefinition]
) -> AgentDefinition:
    """One definition with its own prompts, checked against the other agents. All of its problems are raised,
    together with those found before."""
    definition, problems = read_agent(text, file, known)
    return complete(definition, others, known, file, [*before, *problems])


def read_agent(text: str, file: str, known: Catalogue) -> tuple[AgentDefinition, list[FieldProblem]]:
    """A definition, and its faults apart from references. Raises if nothing is left that could be checked."""
    fields, body = _front_matter(text, file)
    problems: list[FieldProblem] = []
    if "prompt" in fields:
        problems.append(FieldProblem("prompt", "belongs below the front matter, not in it"))
    definition, found = validate_parts({**fields, "prompt": body if body.strip() else ""}, AgentDefinition)
    problems += found
    if definition is None:
        raise AgentFileError(file, problems)
    if definition.name != Path(file).stem:
        problems.append(_other_name(definition.name, Path(file).stem))
    return definition, [*problems, *side_problems(definition, known)]


def to_markdown(definition: AgentDefinition) -> str:
    """The text of a file that is read back as the same definition."""
    # the tool lists of MCP servers come from the servers, never from a file
    dumped = definition.model_dump(mode="json", exclude_defaults=True, exclude={"mcp_servers": {"__all__": {"tools"}}})
    prompt = dumped.pop("prompt", "")
    first = ("name", "title", "description", "mode")  # as people write them
    fields = {name: dumped[name] for name in first if name in dumped} | dumped
    return front_matter.join(fields, prompt)


def definition_problems(
    definition: AgentDefinition, agents: Mapping[str, AgentDefinition], known: Catalogue
) -> list[FieldProblem]:
    """The faults of a definition. Agents among its tools were separated before."""
    found: list[FieldProblem] = []
    own = own_tools(definition, may_ask=definition.may_ask, plans=False)
    named = {*known.tools, *own}
    for where, listing in listings_of(definition).items():
        found += _listing_problems(listing, where, known)
    found += [
        FieldProblem(f"permissions.{index}.permission", f"no tool {rule.permission!r}", tuple(sorted(named)))
        for index, rule in enumerate(definition.permissions)
        if not names_a_tool(rule.permission, named)
        and not names_a_server(rule.permission, definition)
        and not (definition.references and rule.permission.startswith(MCP_PREFIX))  # of a subagent's server, perhaps
    ]
    found += mcp_problems(definition)
    if definition.skills:
        found += _skill_problems(definition)
    properties = (definition.input_schema or {}).get("properties")
    known_arguments = properties if isinstance(properties, dict) else dict.fromkeys(DEFAULT_ARGUMENTS)
    texts = {"prompt": definition.prompt} | {
        f"prompts.{one.name}.text": one.text for one in definition.prompts.values()
    }
    found += [
        FieldProblem(field, f"the agent has no argument {name!r}", tuple(known_arguments))
        for field, text in texts.items()
        for name in argument_names(text)
        if name not in known_arguments
    ]
    for field, schema in (("input_schema", definition.input_schema), ("output_schema", definition.output_schema)):
        if schema is not None:
            found += [FieldProblem(*one) for one in schema_problems(field, schema)]
    return [*found, *graph_problems(definition, agents, known)]


def _skill_problems(definition: AgentDefinition) -> list[FieldProblem]:
    found = []
    if all(LOAD_SKILL not in view.tools for view in definition.views):
        found.append(FieldProblem("tools", f"the agent has skills, and reads them with {LOAD_SKILL}", (LOAD_SKILL,)))
    if (size := sum(skill.size for skill in definition.skills.values())) > MOST_AGENT_CHARS:
        found.append(FieldProblem("skills", f"{size:,} characters in all; there may be {MOST_AGENT_CHARS:,}"))
    return found


def load_prices(file: Path, providers: Providers) -> PriceTable:
    """The file's own prices, before those of the list."""
    try:
        fields = front_matter.load_yaml(read_text(file))
    except front_matter.FrontMatterError as error:
        raise AgentFileError(file.name, [FieldProblem("(file)", str(error))]) from None
    return _validate(fields, file.name, PriceTable).model_copy(update={"providers": providers})


def parse_prompt(path: Path) -> PromptDefinition:
    file = f"prompts/{path.name}"
    fields, body = _front_matter(read_text(path), file)
    if "text" in fields:
        raise AgentFileError(file, [FieldProblem("text", "belongs below the front matter, not in it")])
    if not body.strip():
        raise AgentFileError(file, [FieldProblem("text", "missing: write it below the front matter")])
    prompt = _validate({"name": path.stem, **fields, "text": body}, file, PromptDefinition)
    if prompt.name != path.stem:
        raise AgentFileError(file, [_other_name(prompt.name, path.stem)])
    return prompt


def _other_name(name: str, stem: str) -> FieldProblem:
    return FieldProblem("name", f"{name!r} differs from the file's name", (stem,))


def _listing_problems(listing: Equipment, where: str, known: Catalogue) -> list[FieldProblem]:
    """Repeated and unknown names in the lists that agents and prompts have in common."""
    listed = {
        "tools": listing.tools,
        "subagents": [reference.agent for reference in listing.subagents],
        "subagent_tools": [tool.name for tool in listing.subagent_tools],
        "handoffs": listing.handoffs,
        "fallback_models": listing.fallback_models,
        "hooks": listing.hooks,
    }
    found = [
        FieldProblem(where + field, f"{value!r} is listed twice")
        for field, values in listed.items()
        for value in sorted({value for value in values if values.count(value) > 1})
    ]
    for field, names, allowed in (("tools", listing.tools, known.tools), ("hooks", listing.hooks, known.hooks)):
        found += [
            FieldProblem(where + field, f"no {field[:-1]} {name!r}", tuple(sorted(allowed)))
            for name in names
            if name not in allowed
        ]
    return found


def _front_matter(text: str, file: str) -> tuple[JsonObject, str]:
    if len(text) > MAX_FILE_CHARS:
        raise AgentFileError(file, [FieldProblem("(file)", f"longer than {MAX_FILE_CHARS} characters")])
    try:
        return front_matter.split(text)
    except front_matter.FrontMatterError as error:
        raise AgentFileError(file, [FieldProblem("(front matter)", str(error))]) from None


def _without_missing(agents: dict[str, AgentDefinition]) -> dict[str, AgentDefinition]:
    """Leave out agents whose subagents or handoffs are not usable, and then those that need these."""
    while missing := [name for name, definition in agents.items() if _needs(definition) - agents.keys()]:
        agents = {name: definition for name, definition in agents.items() if name not in missing}
    return agents


def _needs(definition: AgentDefinition) -> set[str]:
    views: list[Equipment] = [definition, *definition.prompts.values()]
    return {
        name
        for view in views
        for name in (
            *view.handoffs,
            *(tool.name for tool in view.subagent_tools),
            *(reference.agent for reference in view.subagents),
        )
    }


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise AgentFileError(path.name, [FieldProblem("(file)", f"not UTF-8: {error.reason}")]) from None
    except OSError as error:
        raise AgentFileError(path.name, [FieldProblem("(file)", f"cannot be read: {error.strerror}")]) from None


def _validate(fields: JsonObject, file: str, model: type[Model]) -> Model:
    definition, problems = validate_parts(fields, model)
    if definition is None or problems:
        raise AgentFileError(file, problems)
    return definition


# One text for an agent of several files: its definition, with its skills and the prompts that its sides name.


def one_text(file: Path) -> str:
    """The definition of a file. A prompt that a side names and that is not in the definition is read from the folder
    `prompts` beside it. If it is missing there too, the check of the whole reports it."""
    text = _with_skills(read_text(file), file)
    fields, body = _front_matter(text, file.name)
    sides = [value for name, value in fields.items() if snake_case(name) in ("side_a", "side_b")]
    named = [name for side in sides if isinstance(side, dict) and isinstance(name := side.get("prompt"), str)]
    own = fields.get("prompts", {})
    if not isinstance(own, dict):
        return text
    usable = [name for name in named if re.fullmatch(PROMPT_NAME_PATTERN, name)]
    beside = {name: file.parent / "prompts" / f"{name}.md" for name in usable if name not in own}
    found = {
        name: parse_prompt(path).model_dump(mode="json", exclude_defaults=True)
        for name, path in beside.items()
        if path.is_file()
    }
    return front_matter.join({**fields, "prompts": {**own, **found}}, body) if found else text


def _with_skills(text: str, file: Path) -> str:
    """The text of a definition, with the skills in `<name>/skills` beside it."""
    folders = [path.parent for path in sorted((file.with_suffix("") / "skills").glob(f"*/{SKILL_FILE}"))]
    if not folders:
        return text
    fields, body = _front_matter(text, file.name)
    own = fields.get("skills", {})
    if not isinstance(own, dict):
        return text
    found = {folder.name: _read_skill(folder, file.parent) for folder in folders if folder.name not in own}
    return front_matter.join({**fields, "skills": {**own, **found}}, body)


def _read_skill(folder: Path, agents: Path) -> JsonObject:
    name = folder.relative_to(agents).as_posix()
    try:
        skill = parse_skill(read_text(folder / SKILL_FILE), folder.name)
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / SKILL_FILE]
        if len(paths) > MOST_FILES:
            raise SkillError(f"{format_count(len(paths), 'file')}; there may be {MOST_FILES}")
        files = {path.relative_to(folder).as_posix(): read_text(path) for path in paths}
    except SkillError as error:
        raise AgentFileError(f"{name}/{SKILL_FILE}", [FieldProblem("(file)", str(error))]) from None
    return {**skill.model_dump(mode="json"), "files": files}


# A folder of agent files that is read again when one of them has changed.


Fingerprint = frozenset[tuple[str, int, int, int]]


class AgentFolder:
    """A check costs one stat call per file, so it can run every second. It does not rely on notifications of the
    system, which network drives and containers do not deliver."""

    def __init__(self, folder: Path, known: Catalogue) -> None:
        self._folder = folder
        self._known = known
        self._seen: Fingerprint | None = None

    def changes(self) -> LoadedAgents | None:
        """All agents of the folder, if a file was added, changed or removed since the last call; else None."""
        now = self._fingerprint()  # taken before reading, so that a change during the read is seen next time
        if now == self._seen:
            return None
        loaded = check_agents(self._folder, self._known)
        self._seen = now
        return loaded

    def _fingerprint(self) -> Fingerprint:
        found = []
        for path in (
            *self._folder.glob("*.md"),
            *self._folder.glob("prompts/*.md"),
            *self._folder.glob("*/skills/**/*"),
        ):
            try:
                about = path.stat()
            except OSError:  # it was just removed, or is a dangling link
                continue
            found.append((str(path), about.st_mtime_ns, about.st_size, about.st_ino))
        return frozenset(found)
