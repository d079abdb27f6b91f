"""Problems in an agent file and in the references between agents: the file, the field, and the allowed values."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from domain.agents.definition import (
    MCP_PREFIX,
    AgentDefinition,
    Equipment,
    McpServer,
    Mode,
    Side,
    SideKind,
    SubagentTool,
    Variable,
    VariableKind,
    names_variable,
    snake_case,
    tool_problems,
)
from domain.conversations.subagents import DelegationTool
from domain.json_object import JsonObject
from domain.redaction import PREFIX as SEALED_PREFIX
from domain.redaction import is_sealed
from domain.sessions.session import SIDES, SideName


@dataclass(frozen=True)
class FieldProblem:
    field: str
    message: str
    allowed: tuple[str, ...] = ()

    def __str__(self) -> str:
        hint = f" (allowed: {', '.join(self.allowed)})" if self.allowed else ""
        return f"{self.field}: {self.message}{hint}"


class AgentFileError(ValueError):
    """A file in the agents folder is invalid."""

    def __init__(self, file: str, problems: Sequence[FieldProblem]) -> None:
        self.file = file
        self.problems = list(problems)
        super().__init__(f"{file}: " + "; ".join(map(str, self.problems)))


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[FieldProblem]:
    """Convert pydantic's errors; for an unknown field, list the fields that exist."""
    found = []
    for entry in error.errors(include_url=False):
        path = [str(part) for part in entry["loc"]]
        field = ".".join(path) or "(file)"
        message = entry["msg"].removeprefix("Value error, ")
        # a check of a whole part starts its message with the field
        if not path and (named := re.match(r"(\w+): ", message)):
            field, message = named[1], message[named.end() :]
        if entry["type"] == "extra_forbidden":
            found.append(FieldProblem(field, "unknown field", _fields_at(model, path[:-1])))
        elif entry["type"] == "enum":
            choices = str(entry["ctx"]["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
            found.append(FieldProblem(field, f"{entry['input']!r} is not a known value", tuple(choices)))
        else:
            found.append(FieldProblem(field, message))
    return found


def _fields_at(model: type[BaseModel], path: list[str]) -> tuple[str, ...]:
    for part in path:
        if part not in model.model_fields:
            continue  # a place in a list, or a key
        inner = _model_in(model.model_fields[part].annotation)
        if inner is None:
            return ()
        model = inner
    return tuple(model.model_fields)


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model of a field: its type, or the item type of a list, a dict or a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _model_in(one))), None)


# The names that agent files may use besides each other's: the tools, turn handlers and hooks of a worker.


@dataclass(frozen=True)
class Catalogue:
    tools: Collection[str]
    handlers: Collection[str] = field(default_factory=frozenset)
    hooks: Collection[str] = field(default_factory=frozenset)


# Parse the fields of a definition, in such a way that an error in one field does not hide errors in the others.


Model = TypeVar("Model", bound=BaseModel)
NAMES = {"name", "agent"}
KINDS = {*SideKind}  # who takes the turns of a side


def validate_parts(fields: JsonObject, model: type[Model]) -> tuple[Model | None, list[FieldProblem]]:
    """Parse a definition without its invalid fields, and list the errors in those, so that they do not hide errors in
    the rest. None if the rest would have another meaning without them."""
    try:
        # Strict JSON: "yes" is not true and "5" is not a number, but an enum may still be written as text.
        return model.model_validate_json(json.dumps(fields), strict=True), []
    except ValidationError as error:
        problems, paths = problems_of(error, model), [entry["loc"] for entry in error.errors() if entry["loc"]]
        unknown = {entry["loc"] for entry in error.errors() if entry["type"] == "extra_forbidden"}
    except (TypeError, ValueError) as error:
        return None, [FieldProblem("(front matter)", f"only JSON types are allowed: {error}")]
    rest: JsonObject = json.loads(json.dumps(fields))
    if not paths:  # the fields contradict each other
        removed = rest.pop("type", None) is not None
    else:
        removed = sum(_remove(rest, path, anything=path in unknown) for path in paths) == len(paths)
    if not removed:
        return None, problems
    definition, more = validate_parts(rest, model)
    named = {problem.field for problem in problems}
    return definition, [*problems, *(problem for problem in more if problem.field not in named)]


def _remove(fields: JsonObject, path: tuple[int | str, ...], *, anything: bool) -> bool:
    """Remove an unknown field, or a field with a plain value without which the rest has the same meaning."""
    inner: Any = fields
    for part in path[:-1]:
        inner = _at(inner, part)
    name = (
        next((one for one in inner if snake_case(one) == snake_case(str(path[-1]))), "")
        if isinstance(inner, dict)
        else ""
    )
    decides = snake_case(name) in (NAMES if len(path) == 1 else NAMES | KINDS)
    if not name or not (anything or not (decides or isinstance(inner[name], dict | list))):
        return False
    del inner[name]
    return True


def _at(value: Any, part: int | str) -> Any:
    """A part of a definition in either spelling."""
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return value[part]
    if isinstance(value, dict):
        return next((value[name] for name in value if snake_case(name) == part), None)
    return None


def listings_of(definition: AgentDefinition) -> dict[str, Equipment]:
    """The definition and its prompts, by what the names of their fields begin with."""
    return {"": definition, **{f"prompts.{name}.": prompt for name, prompt in definition.prompts.items()}}


# Faults in the variables of a definition: defaults that show a secret, values handed to the wrong agent.


def variable_problems(definition: AgentDefinition, agents: Mapping[str, AgentDefinition]) -> Iterator[FieldProblem]:
    for name, one in definition.all_variables.items():
        if one.kind is VariableKind.SECRET and name in definition.env:
            yield FieldProblem(f"env.{name}", "is a secret: a definition is stored in plain text")
        if one.kind is VariableKind.SECRET and one.default is not None:
            yield FieldProblem(f"variables.{name}.default", "is a secret: a definition is stored in plain text")
        if is_sealed(definition.env.get(name)) or is_sealed(one.default):
            yield FieldProblem(f"variables.{name}", f"has a value that begins with {SEALED_PREFIX!r}")
    for where, listing in listings_of(definition).items():
        for index, tool in enumerate(listing.subagent_tools):
            child = agents.get(tool.name)
            known = child.all_variables if child else {}
            for name in (name for name in tool.handed_over if name in known and not known[name].scoped):
                reason = f"{name!r} is not scoped in {tool.name!r}: its model would see the value"
                yield FieldProblem(f"{where}subagent_tools.{index}.scoped_env", reason)


# Faults in the MCP servers of a definition that can be found without contacting them.


# the transport sets these itself
_RESERVED = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding", "accept", "accept-encoding"}
)
_UNUSABLE = re.compile(r"[^A-Za-z0-9_*?-]")  # characters that no name of a tool has, and no pattern for one
_SECRET_NAMES = ("auth", "cookie", "key", "secret", "token")


def names_a_server(permission: str, definition: AgentDefinition) -> bool:
    """Whether a rule is about tools of one of its servers, whose list may not be known yet."""
    return any(permission.startswith(f"{MCP_PREFIX}{name}__") for name in definition.mcp_servers)


def rule_problem(permission: str, definition: AgentDefinition) -> str | None:
    """Why a rule about tools of one of its servers can never match: it has the server's own spelling."""
    if names_a_server(permission, definition) and (usual := _UNUSABLE.sub("_", permission)) != permission:
        return f"no tool is ever called {permission!r}: its name here is {usual!r}"
    return None


def mcp_problems(definition: AgentDefinition) -> Iterator[FieldProblem]:
    known = tuple(definition.all_variables)
    for index, rule in enumerate(definition.permissions):
        if reason := rule_problem(rule.permission, definition):
            yield FieldProblem(f"permissions.{index}.permission", reason)
    for name, server in definition.mcp_servers.items():
        where = f"mcp_servers.{name}"
        if bool(server.url) == bool(server.command):
            yield FieldProblem(where, "needs either a url or a command")
        elif server.command and server.headers:
            yield FieldProblem(f"{where}.headers", "are sent to a url, and this server is a program")
        elif server.url and (reason := _url_problem(server.url)):
            yield FieldProblem(f"{where}.url", reason)
        yield from _header_problems(where, server)
        for variable in sorted(server.variables() - {*known}):
            yield FieldProblem(f"{where}.headers", f"the agent has no variable {variable!r}", known)


def _url_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "must be an http:// or https:// URL with a host"
    if parts.username is not None or parts.password is not None:
        return "has a user name or password: put them into a header, with a variable"
    return "has a fragment, which no server sees" if parts.fragment else None


def _header_problems(where: str, server: McpServer) -> Iterator[FieldProblem]:
    for name, value in server.headers.items():
        lower = name.lower()
        if lower in _RESERVED or lower.startswith("mcp-"):
            yield FieldProblem(f"{where}.headers.{name}", "is set by the protocol itself")
        elif not names_variable(value) and any(part in lower for part in _SECRET_NAMES):
            reason = "looks like a secret: a definition is stored in plain text. Name a variable, as in ${TOKEN}"
            yield FieldProblem(f"{where}.headers.{name}", reason)


# Faults in the two sides of one definition that can be found without the other agents.


def side_problems(definition: AgentDefinition, known: Catalogue) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    for name in SIDES:
        side = definition.side_a if name == "a" else definition.side_b
        if side is not None:
            found += _kind_problems(definition, name, side, known)
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


def _kind_problems(definition: AgentDefinition, name: SideName, side: Side, known: Catalogue) -> Iterator[FieldProblem]:
    field = f"side_{name}"
    kinds = [kind for kind in SideKind if getattr(side, kind)]
    own_text = name == "a" and bool(definition.prompt)
    if len(kinds) > 1 or (not kinds and not own_text):
        reason = f"has {' and '.join(kinds)}" if kinds else "does not name who takes the turns"
        yield FieldProblem(field, f"{reason}: exactly one is needed", tuple(SideKind))
    if side.prompt and side.prompt not in definition.prompts and not (own_text and side.prompt == definition.name):
        there = tuple(sorted(definition.prompts))
        yield FieldProblem(f"{field}.prompt", f"no prompt {side.prompt!r} in agents/prompts", there)
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
    schemas = {tool.name: tool.input_schema for tool in view.declared_tools}
    callable_names = sorted({*schemas, *(tool for tool in view.tools if tool in known.tools)})
    named = {"stop_tool": side.stop_tool} | {field: binding.name for field, binding in side.bindings().items()}
    for where, tool in named.items():
        if tool is not None and tool not in callable_names:
            reason = f"no tool {tool!r} on this side"
            yield FieldProblem(f"side_{name}.{where}", reason, tuple(callable_names))
    if side.session_stop and side.session_fail and side.session_stop.name == side.session_fail.name:
        yield FieldProblem(f"side_{name}.session_fail", "is the same tool as session_stop")
    properties = {
        f"{field}.{part}": (binding.name, getattr(binding, part))
        for field, binding in side.bindings().items()
        for part in ("message_property", "attachments_property")
    }
    properties["stop_tool_response_property"] = (side.stop_tool or "", side.stop_tool_response_property)
    for where, (tool, value) in properties.items():
        arguments = schemas.get(tool, {}).get("properties")
        if value is not None and isinstance(arguments, dict) and value not in arguments:
            reason = f"{tool!r} has no argument {value!r}"
            yield FieldProblem(f"side_{name}.{where}", reason, tuple(arguments))


def _declared_tool_problems(definition: AgentDefinition, known: Catalogue) -> Iterator[FieldProblem]:
    for where, listing in listings_of(definition).items():
        found = tool_problems(f"{where}declared_tools", listing.declared_tools, known.tools)
        yield from (FieldProblem(*one) for one in found)


# references between agents: exposed agents among the tools, and faults in the references

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
    # a model must not call what only the platform calls
    if definition.expose_as_tool and definition.name in {*known.tools, DelegationTool.ATTEMPT}:
        found.append(FieldProblem("expose_as_tool", f"there is already a tool named {definition.name!r}"))
    for where, listing in listings_of(definition).items():
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
    for index, tool in enumerate(listing.subagent_tools):
        field = f"{where}subagent_tools.{index}"
        yield from _exposure_problems(tool.name, agents, f"{field}.name", dual=True)
        if (agent := agents.get(tool.name)) is None:
            continue
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
    tool: SubagentTool, field: str, agent: AgentDefinition, variables: Mapping[str, Variable]
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
    for name in listing.handoffs:
        yield from _exposure_problems(name, agents, f"{where}handoffs", dual=False)


def _exposure_problems(
    name: str, agents: Mapping[str, AgentDefinition], field: str, *, dual: bool
) -> Iterator[FieldProblem]:
    """Why an agent cannot be called as a tool: as a subagent if `dual`, else as a handoff."""
    usable = tuple(sorted(name for name, agent in agents.items() if agent.dual == dual and agent.expose_as_tool))
    agent = agents.get(name)
    if agent is None:
        yield FieldProblem(field, f"no agent {name!r}", usable)
    elif agent.dual != dual:
        kind = "a human side, so it cannot be a subagent" if dual else "no human side, so it cannot be a handoff"
        yield FieldProblem(field, f"{name!r} has {kind}", usable)
    elif not agent.expose_as_tool:
        yield FieldProblem(field, f"{name!r} does not set expose_as_tool", usable)
