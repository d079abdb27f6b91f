"""An agent definition, as people edit it: a Markdown file with these fields as YAML front matter, then the prompt.

An agent has two sides. Most agents are the short form: a model with the file's own text on side A, people on side B.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from domain.frozen import Closed, Frozen
from domain.json_object import JsonObject
from domain.json_schema import SchemaProblem, schema_problems
from domain.messages import ToolCallBlock
from domain.policy.rules import PlatformToolRule, Rule, host_of
from domain.sessions.session import SIDES, DeliveryMode, Effect, SideName
from domain.skills import MOST_SKILLS, Skill, SkillName

# Both spellings of a field: agent files may write `stop_on_response` or, as the standard does, `stopOnResponse`.


_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")


@lru_cache(maxsize=1_024)
def snake_case(name: str) -> str:
    return _HUMP.sub(r"_\1", name).lower()


class AgentPart(Closed):
    """A part of an agent definition: frozen, without unknown fields, in either spelling."""

    @model_validator(mode="before")
    @classmethod
    def _accept_other_forms(cls, value: Any) -> Any:
        return cls.normalise(_in_snake_case(cls, value)) if isinstance(value, dict) else value

    @classmethod
    def normalise(cls, fields: JsonObject) -> JsonObject:
        """Map further short or earlier forms onto the fields; parts that know some override it."""
        return fields


def _in_snake_case(part: type[BaseModel], value: JsonObject) -> JsonObject:
    fields = dict(value)
    for name in value:
        plain = snake_case(name) if isinstance(name, str) else name
        if plain != name and plain in part.model_fields:
            if plain in value:
                raise ValueError(f"{name} and {plain} are the same field; give one of them")
            fields[plain] = fields.pop(name)
    return fields


# Names that several parts of a definition use.


AGENT_NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,62}$"
AgentName = Annotated[str, Field(pattern=AGENT_NAME_PATTERN)]
AgentVersion = Annotated[int, Field(ge=1, le=2**31 - 1)]
VARIABLE_NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_]{0,62}$"
VariableName = Annotated[str, Field(pattern=VARIABLE_NAME_PATTERN)]
GivenVariables = Annotated[
    dict[VariableName, Annotated[str, Field(min_length=1, max_length=10_000)]], Field(min_length=1, max_length=50)
]
HookName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,99}$")]
ModelName = Annotated[str, Field(pattern=r"^[!-~]{1,200}$")]  # it is in prompts, events and logs


# MCP servers whose tools an agent has: their addresses, the headers sent to them, and their pinned tool lists.


MOST_MCP_SERVERS = 6
MOST_MCP_TOOLS = 128  # of one server
LONGEST_DESCRIPTION = 4_000
LONGEST_NAME = 64  # of a tool, for the model
MCP_PREFIX = "mcp__"
STDIO = "stdio"  # in place of a host, for a program

ServerName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,23}$")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
ToolPattern = Annotated[str, Field(min_length=1, max_length=200)]  # the server's name of a tool, with * and ?
Argument = Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"^[^\x00]*$")]
HeaderValue = Annotated[str, Field(pattern=r"^[\x20-\x7e]{1,1000}$")]

_VARIABLE = re.compile(r"\$\{(" + VARIABLE_NAME_PATTERN.strip("^$") + r")\}")
_PLAIN = re.compile(r"[^A-Za-z0-9_-]")


class McpTool(Closed):
    """A tool as its server described it when the agent's version was made."""

    name: str = Field(min_length=1, max_length=200)  # as the server calls it
    description: str = Field(default="", max_length=LONGEST_DESCRIPTION)
    input_schema: JsonObject
    read_only: bool = False  # hints of the server
    idempotent: bool = False


class McpServer(AgentPart):
    """It has an address, or it is a program that the worker starts in the sandbox for each call."""

    url: str = Field(default="", max_length=2_048, exclude_if=lambda value: not value)
    command: list[Argument] = Field(default_factory=list, max_length=50, exclude_if=lambda value: not value)
    # A value may name variables of the agent, as in "Bearer ${TOKEN}", so that no version of the definition holds a
    # secret.
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict, max_length=20)
    only: list[ToolPattern] | None = Field(default=None, max_length=200)  # which of its tools; None: all
    effects: dict[ToolPattern, Effect] = Field(default_factory=dict, max_length=200)  # the first that matches counts
    trusted: bool = False  # trust the server's hints about the effects of its tools
    timeout_s: float = Field(default=60, ge=1, le=600)  # of one call
    tools: list[McpTool] | None = Field(default=None, max_length=MOST_MCP_TOOLS)  # the pinned list; None: not read yet

    @property
    def host(self) -> str:
        return STDIO if self.command else host_of(self.url)

    @property
    def unpinned(self) -> "McpServer":
        return self.model_copy(update={"tools": None})

    def offers(self, tool: str) -> bool:
        return self.only is None or any(fnmatchcase(tool, pattern) for pattern in self.only)

    def effect_of(self, tool: McpTool) -> Effect:
        """The effect of a tool: as the definition says; else, for a trusted server, by its hints; else the
        strictest."""
        for pattern, effect in self.effects.items():
            if fnmatchcase(tool.name, pattern):
                return effect
        if self.trusted and tool.read_only:
            return Effect.READ
        return Effect.IDEMPOTENT if self.trusted and tool.idempotent else Effect.ONCE

    def variables(self) -> set[str]:
        """The variables that its headers name."""
        return {name for value in self.headers.values() for name in _VARIABLE.findall(value)}

    def fill_headers(self, values: Mapping[str, str]) -> dict[str, str]:
        """The headers with these variables filled in; KeyError with the name of one that has no value."""
        return {
            name: _VARIABLE.sub(lambda found: values[found[1]], value).strip() for name, value in self.headers.items()
        }


def names_variable(value: str) -> bool:
    """Whether the value of a header has a variable in it."""
    return _VARIABLE.search(value) is not None


McpServers = Annotated[dict[ServerName, McpServer], Field(max_length=MOST_MCP_SERVERS)]


def mcp_tool_name(server: str, tool: str) -> str:
    """The name by which models and rules know a server's tool."""
    name = MCP_PREFIX + server + "__" + _PLAIN.sub("_", tool)
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


def list_pinned_tools(servers: Mapping[str, McpServer]) -> Iterator[tuple[str, str, McpServer, McpTool]]:
    """For each pinned tool: its name for the model, its server's name, the server and the tool."""
    for name, server in servers.items():
        for tool in server.tools or ():
            yield mcp_tool_name(name, tool.name), name, server, tool


# External tools: a caller declares them, the model calls them, and the caller answers each call itself.


MAX_EXTERNAL_TOOLS = 32

# the caller's answer to a call: its result or an error
RESULT_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"result": {}, "error": {"type": "string", "minLength": 1, "maxLength": 60_000}},
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 1,
}


class ExternalTool(AgentPart):
    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = Field(min_length=1, max_length=2_000)
    input_schema: JsonObject


def tool_problems(where: str, tools: Sequence[ExternalTool], known: Collection[str]) -> list[SchemaProblem]:
    """List the faults of these tools; `known` are the names of the agent's own tools."""
    found: list[SchemaProblem] = []
    names = [tool.name for tool in tools]
    for index, tool in enumerate(tools):
        field = f"{where}.{index}"
        if tool.name in known:
            found.append(SchemaProblem(f"{field}.name", "the agent already has a tool by this name"))
        elif tool.name.startswith(MCP_PREFIX):
            found.append(SchemaProblem(f"{field}.name", f"names with {MCP_PREFIX} are those of tools of MCP servers"))
        elif tool.name in names[:index]:
            found.append(SchemaProblem(f"{field}.name", "it is listed twice"))
        schema = tool.input_schema
        if schema.get("type") != "object":
            found.append(
                SchemaProblem(f"{field}.input_schema.type", "the arguments of a tool are an object", ("object",))
            )
        else:
            found += schema_problems(f"{field}.input_schema", schema)
    return found


# The two sides of an agent: who takes the turns on each, when a turn is over, and which tools end the session.


PROMPT_NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]{0,62}$"
PromptName = Annotated[str, Field(pattern=PROMPT_NAME_PATTERN)]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
PropertyName = Annotated[str, Field(min_length=1, max_length=100)]
HandlerName = Annotated[str, Field(min_length=1, max_length=100)]


class SideKind(StrEnum):
    HUMAN = "human"  # people, or a program that calls the API
    PROMPT = "prompt"  # a model with a prompt
    HANDLER = "handler"  # Python code that is given each turn


class Binding(AgentPart):
    """A tool whose call controls the session. In a file the bare name is enough."""

    name: ToolName
    message_property: PropertyName | None = None  # the argument that becomes the message
    attachments_property: PropertyName | None = None  # the argument that lists paths of files to attach

    def message(self, arguments: JsonObject, text: str = "") -> str:
        """The message of a call: the mapped argument; without a mapping the response's text, else all arguments."""
        if self.message_property is None:
            return text.strip() or (json.dumps(arguments, ensure_ascii=False) if arguments else "")
        value = arguments.get(self.message_property, "")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _by_tool(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


ToolBinding = Annotated[Binding, BeforeValidator(_by_tool)]


class Side(AgentPart):
    """One side of an agent: exactly one of `human`, `prompt` and `handler`."""

    human: bool = False
    prompt: PromptName | None = None  # a file in agents/prompts, or the agent's own text
    handler: HandlerName | None = None
    label: str | None = Field(default=None, max_length=100)
    stop_on_response: bool = True  # a response without tool calls ends the side's turn
    stop_tool: ToolName | None = None  # so does a call of this tool
    stop_tool_response_property: PropertyName | None = None  # its argument that holds the turn's outcome
    max_steps: int | None = Field(default=None, ge=1, le=10_000)  # limit for this side in one session
    session_stop: ToolBinding | None = None  # ends the session successfully
    session_fail: ToolBinding | None = None  # ends it as failed
    session_status: ToolBinding | None = None  # publishes a status and ends nothing

    @property
    def kind(self) -> SideKind:
        if self.human:
            return SideKind.HUMAN
        return SideKind.HANDLER if self.handler is not None else SideKind.PROMPT

    def turn_text(self, calls: Sequence[ToolCallBlock]) -> str | None:
        """The outcome that the stop tool's call gives for the turn; None if there is no such call or no mapped
        argument."""
        if self.stop_tool is None or self.stop_tool_response_property is None:
            return None
        called: JsonObject = next((call.arguments for call in calls if call.name == self.stop_tool), {})
        value = called.get(self.stop_tool_response_property)
        return value if isinstance(value, str) or value is None else json.dumps(value, ensure_ascii=False)

    def bindings(self) -> dict[str, Binding]:
        """The bindings that are set, by their field."""
        found = {name: getattr(self, name) for name in ("session_stop", "session_fail", "session_status")}
        return {name: binding for name, binding in found.items() if binding is not None}


def side_from_word(value: Any) -> Any:
    """`side_b: human` is the short form of `side_b: {human: true}`."""
    return {"human": True} if value == SideKind.HUMAN else value


# A subagent as a tool of a prompt: which agent, whether it is waited for, and whether it can be addressed again.


class ParentCommunication(StrEnum):
    IMPLICIT = "implicit"  # its end is queued for the parent
    EXPLICIT = "explicit"  # only what it sends with notify_parent reaches the parent


class ReceivingSide(StrEnum):
    """The side of the child that receives a parent's message. It arrives there as a message of the other side."""

    SIDE_A = "side_a"
    SIDE_B = "side_b"


class WorkspaceSharing(StrEnum):
    INHERIT = "inherit"  # the parent's workspace
    ISOLATED = "isolated"  # a separate one; files cross only as attachments


class Resumable(AgentPart):
    """An instance that still exists after its result and can be sent further messages."""

    receives_messages: ReceivingSide = ReceivingSide.SIDE_A
    max_instances: int | None = Field(default=None, ge=1, le=100)
    parent_communication: ParentCommunication = ParentCommunication.IMPLICIT


class Immediate(AgentPart):
    """The child starts when its parent's prompt becomes active, before the first model step."""

    name_env: VariableName | None = None  # a variable that names the child; the model may see it
    description_env: VariableName | None = None  # a variable that describes its work; the model may see it
    scoped_env: list[VariableName] = Field(default_factory=list, max_length=50)  # handed over, never shown to a model


def _from_flag(value: Any) -> Any:
    """`true` means an object with the defaults, `false` means None."""
    if value is True:
        return {}
    return None if value is False else value


class SubagentTool(AgentPart):
    name: AgentName
    blocking: bool = True
    resumable: Annotated[Resumable | None, BeforeValidator(_from_flag)] = None
    immediate: Annotated[Immediate | None, BeforeValidator(_from_flag)] = None
    optional: VariableName | None = None  # available only if this variable is true, 1 or yes
    hidden: bool = False  # not offered to the model: it runs only as `immediate`
    init_user_message_property: PropertyName | None = None  # the argument that is the child's first message
    init_attachments_property: PropertyName | None = None  # the argument with paths of files to copy to it
    init_agent_name_property: PropertyName | None = None  # the argument that names the instance
    environment: WorkspaceSharing = WorkspaceSharing.ISOLATED
    scoped_env: list[VariableName] = Field(default_factory=list, max_length=50)  # handed over; not inherited otherwise

    @property
    def handed_over(self) -> list[str]:
        """The variables whose values are given to the child's thread but never shown to a model."""
        return [*self.scoped_env, *(self.immediate.scoped_env if self.immediate else [])]

    @property
    def hints(self) -> list[str]:
        """The variables that the model may see because they name or describe the child."""
        named = [self.immediate.name_env, self.immediate.description_env] if self.immediate else []
        return [name for name in named if name is not None]


# A prompt: the text that one side of an agent follows, with its model, tools, subagents, hooks and variables.


class SubagentRef(AgentPart):
    """A subagent that may be delegated to with `task` and its siblings. In a file the bare name is enough."""

    agent: AgentName
    delivery: DeliveryMode | None = None  # how its outcomes arrive; None: as the starting tool does
    may_ask: bool = False  # it may ask people even when it runs in the background


class VariableKind(StrEnum):
    TEXT = "text"  # may be shown to the model
    SECRET = "secret"  # encrypted at rest, given to tools only, redacted everywhere else


class Variable(AgentPart):
    """A value the agent needs before it can start. In a file the bare description is enough."""

    description: str = Field(min_length=1, max_length=500)
    required: bool = True
    kind: VariableKind = VariableKind.TEXT
    scoped: bool = False  # set per thread: a child does not inherit its parent's value
    default: str | None = Field(default=None, max_length=10_000)  # if no value is given anywhere else

    @property
    def hidden(self) -> bool:
        """Whether no model may see its value."""
        return self.scoped or self.kind is VariableKind.SECRET


class DeclaredTool(ExternalTool):
    """A tool without code. A call of it has only the effect that a binding or a stop rule gives it."""


def _by_agent(value: Any) -> Any:
    return {"agent": value} if isinstance(value, str) else value


def _by_description(value: Any) -> Any:
    return {"description": value} if isinstance(value, str) else value


Subagents = Annotated[list[Annotated[SubagentRef, BeforeValidator(_by_agent)]], Field(max_length=64)]
Variables = Annotated[
    dict[VariableName, Annotated[Variable, BeforeValidator(_by_description)]],
    Field(max_length=50),
]


def tools_by_kind(fields: JsonObject) -> JsonObject:
    """Move the objects in `tools` to `subagent_tools`: the standard configures subagents among the tools."""
    listed = fields.get("tools")
    configured = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if not configured:
        return fields
    names = [one for one in fields["tools"] if not isinstance(one, dict)]
    return {**fields, "tools": names, "subagent_tools": [*fields.get("subagent_tools", []), *configured]}


class Equipment(AgentPart):
    """The settings of one side. An agent has them for its own text, and each prompt file has them for its text."""

    model: ModelName | None = None  # None: the parent's, else the default
    fallback_models: list[ModelName] = Field(default_factory=list, max_length=5)
    thinking_tokens: int | None = Field(default=None, ge=1_024, le=64_000)
    tools: list[str] = Field(default_factory=list, max_length=64)
    declared_tools: list[DeclaredTool] = Field(default_factory=list, max_length=32)
    subagents: Subagents = Field(default_factory=list)
    subagent_tools: list[SubagentTool] = Field(default_factory=list, max_length=32)
    handoffs: list[AgentName] = Field(default_factory=list, max_length=32)  # agents that may take over the thread
    hooks: list[HookName] = Field(default_factory=list, max_length=20)  # a prompt's replace its agent's
    variables: Variables = Field(default_factory=dict)


class PromptDefinition(Equipment):
    """One file in agents/prompts: these fields as front matter, then the text."""

    name: PromptName
    description: str = Field(default="", max_length=2_000)
    max_tokens: int | None = Field(default=None, ge=1, le=128_000)  # None: the agent's
    text: str = Field(min_length=1, max_length=100_000)

    @classmethod
    def normalise(cls, fields: JsonObject) -> JsonObject:
        return tools_by_kind(fields)


HostPattern = Annotated[str, Field(pattern=r"^[a-z0-9.:*?-]{1,253}$")]  # lower case; * and ? match anything

_UNNAMED, _PEOPLE = Side(), Side(human=True)  # what the short form leaves out

_PACKAGING = ("package_name", "packageName", "version", "author", "license")


class Mode(StrEnum):
    PRIMARY = "primary"  # only callers start it
    SUBAGENT = "subagent"  # only other agents start it
    ALL = "all"


class AgentLimits(Closed):
    """Default limits of this agent's sessions. A task may ask for less, or for more up to the platform's ceilings."""

    ttl_ms: int | None = Field(default=None, ge=1_000)
    steps: int | None = Field(default=None, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    cost_usd: float | None = Field(default=None, gt=0)
    tool_calls: int | None = Field(default=None, ge=1)


class Packaging(AgentPart):
    """Where a packed agent comes from; nothing reads it at run time."""

    package_name: str | None = Field(default=None, max_length=200)
    version: str | None = Field(default=None, max_length=100)
    author: str | None = Field(default=None, max_length=200)
    license: str | None = Field(default=None, max_length=100)


SideField = Annotated[Side | None, BeforeValidator(side_from_word)]


class AgentDefinition(Equipment):
    name: AgentName
    title: str | None = Field(default=None, max_length=200)
    description: str = Field(default="", max_length=2_000)
    icon: str | None = Field(default=None, max_length=200)
    mode: Mode = Mode.ALL
    side_a: SideField = None  # None: a model with this definition's own prompt
    side_b: SideField = None  # None: people
    prompts: dict[str, PromptDefinition] = Field(default_factory=dict, max_length=2)  # those that the sides name
    max_session_turns: int | None = Field(default=None, ge=1, le=10_000)
    expose_as_tool: bool = False  # other agents may have it in their `tools`
    tool_description: str | None = Field(default=None, min_length=1, max_length=2_000)
    env: dict[VariableName, Annotated[str, Field(max_length=10_000)]] = Field(default_factory=dict, max_length=50)
    packaging: Packaging | None = None
    max_depth: int | None = Field(default=None, ge=1, le=10)  # how deep subagents may nest; None: platform default
    permissions: list[Rule] = Field(default_factory=list, max_length=200)
    schedules: int = Field(default=0, ge=0, le=100)  # most that manage_schedule may have at a time
    may_ask: bool = False  # whether it has ask_user, to ask people and wait for an answer
    limits: AgentLimits = AgentLimits()
    input_schema: JsonObject | None = None
    mcp_servers: McpServers = Field(default_factory=dict)
    # the hosts of MCP servers that a task may bring; none by default
    task_mcp_hosts: list[HostPattern] = Field(default_factory=list, max_length=50)
    output_schema: JsonObject | None = None  # JSON schema of its final answer
    max_tokens: int = Field(default=8_192, ge=1, le=128_000)  # longest reply
    # the text of a reply is sent once it is complete, so that nobody is shown one that broke off
    whole_replies: bool = False
    network: bool = False  # commands may use the network if the operator allows it
    network_hosts: list[HostPattern] | None = Field(default=None, max_length=100)  # None: any public host
    # by name; in files they are folders beside the agent's own
    skills: dict[SkillName, Skill] = Field(default_factory=dict, max_length=MOST_SKILLS)
    prompt: str = Field(default="", max_length=100_000)  # the short form's text

    @classmethod
    def normalise(cls, fields: JsonObject) -> JsonObject:
        """Map version 0.1.0 of the standard: an agent `type`, packaging at the top, subagents among the tools."""
        # A record of the API also has a `version`, which is not part of the packaging.
        packaging = {name: fields.pop(name) for name in _PACKAGING if name in fields and name not in cls.model_fields}
        if packaging and "packaging" not in fields:
            fields["packaging"] = packaging
        kind, side_b = fields.pop("type", None), side_from_word(fields.get("side_b"))
        if kind not in (None, "ai_human", "dual_ai"):
            raise ValueError(f"type: {kind!r} is not a known value (allowed: ai_human, dual_ai)")
        if kind == "dual_ai" and side_b is None:
            raise ValueError("side_b: missing, and type dual_ai needs it")
        if kind == "ai_human" and side_b not in (None, {"human": True}):
            raise ValueError("side_b: type ai_human has people there; leave it out, or use type dual_ai")
        return tools_by_kind(fields)

    def side(self, name: SideName) -> Side:
        if name == "a":
            side = self.side_a or _UNNAMED
            return side if side.human or side.handler or side.prompt else side.model_copy(update={"prompt": self.name})
        return self.side_b or _PEOPLE

    @property
    def dual(self) -> bool:
        """Whether no side is human: the agent then converses with itself until a rule ends the session."""
        return SideKind.HUMAN not in (self.side("a").kind, self.side("b").kind)

    @property
    def first_side(self) -> SideName:
        """The side that takes the first turn: side A, or side B if people are on side A."""
        return "b" if self.side("a").human else "a"

    def for_side(self, name: SideName) -> "AgentDefinition":
        """The definition as one side's turns see it: the prompt of that side in place of the agent's own."""
        prompt = self.prompts.get(self.side(name).prompt or "") if self.prompts else None
        if prompt is None:
            return self
        return self.model_copy(
            update={
                "prompt": prompt.text,
                "model": prompt.model or self.model,
                "fallback_models": prompt.fallback_models or self.fallback_models,
                "max_tokens": prompt.max_tokens or self.max_tokens,
                "thinking_tokens": prompt.thinking_tokens or self.thinking_tokens,
                "tools": prompt.tools,
                "declared_tools": prompt.declared_tools,
                "subagents": prompt.subagents,
                "subagent_tools": prompt.subagent_tools,
                "handoffs": prompt.handoffs,
                "hooks": prompt.hooks or self.hooks,
                "variables": {**self.variables, **prompt.variables},
            }
        )

    @property
    def views(self) -> list["AgentDefinition"]:
        """The definition as each side that is not human sees it."""
        if self.side_a is None and self.side_b is None:  # a plain agent, like most
            return [self.for_side("a")]
        return [self.for_side(name) for name in SIDES if not self.side(name).human]

    @property
    def all_variables(self) -> dict[VariableName, Variable]:
        """The variables of all its sides."""
        return {name: variable for view in self.views for name, variable in view.variables.items()}

    @property
    def settable_variables(self) -> dict[VariableName, Variable]:
        """Its variables, and those that are named only in the settings of its subagents."""
        tools = [tool for view in self.views for tool in view.subagent_tools]
        named = [name for tool in tools for name in (tool.optional, *tool.handed_over, *tool.hints) if name]
        used = {name: Variable(description="named by a subagent tool", required=False) for name in named}
        return {**used, **self.all_variables}

    @property
    def references(self) -> list[AgentName]:
        """The agents that it can start or hand its thread to."""
        views = self.views
        return [
            *(tool.name for view in views for tool in view.subagent_tools),
            *(ref.agent for view in views for ref in view.subagents),
            *(name for view in views for name in view.handoffs),
        ]

    @property
    def rules(self) -> list[Rule]:
        """Its permissions: those that name a tool of the platform are about that tool only."""
        return [
            rule if {*"*?"} & {*rule.permission} else PlatformToolRule.model_construct(**dict(rule))
            for rule in self.permissions
        ]

    def speaker(self, name: SideName) -> str:
        """The name that messages of a side are shown with."""
        return self.side(name).label or self.name

    def may_reach(self, host: str) -> bool:
        """Whether the definition lets its commands reach this host; the platform's own guard must allow it too."""
        return self.network and (
            self.network_hosts is None or any(fnmatchcase(host, one) for one in self.network_hosts)
        )

    def subagent(self, name: str) -> SubagentRef | None:
        return next((ref for ref in self.subagents if ref.agent == name), None)


# The two sides of a session's agent, as the session's loop needs them.


class Sides(Frozen):
    """Who takes the turns, which rules end them, and how many turns there may be. A plain agent, with a model on side
    A, people on side B and no rules, has no `Sides`."""

    a: Side
    b: Side
    models: dict[SideName, list[str]]  # per side that is not human: the model, then its fallbacks
    max_session_turns: int | None = None
    # sides whose prompt starts subagents before the first model step
    immediate: list[SideName] = Field(default_factory=list)
    hooked: list[SideName] = Field(default_factory=list)  # those with hooks

    def of(self, name: SideName) -> Side:
        return self.a if name == "a" else self.b

    @property
    def first(self) -> SideName:
        return "b" if self.a.human else "a"

    def speaker(self, name: SideName) -> str | None:
        """The label of a side for watchers; None if it is the only side that is not human."""
        return self.of(name).label or f"side {name.upper()}" if self.dual else None

    @property
    def plain(self) -> bool:
        """Whether the side has no stop rules, so that it works like an agent without sides."""
        return self.b.human and self.a.model_copy(update={"prompt": None, "label": None}) == Side()

    @property
    def inline(self) -> bool:
        """Whether the agent can run as an inline line of another session: a model on side A, people on side B."""
        return self.b.human and not self.a.human and self.a.handler is None

    @property
    def dual(self) -> bool:
        return not (self.a.human or self.b.human)


def other_side(name: SideName) -> SideName:
    return "b" if name == "a" else "a"


def all_models(models: list[str], sides: Sides | None) -> list[str]:
    """Every model that a session may call."""
    return list(dict.fromkeys([*models, *(name for own in (sides.models if sides else {}).values() for name in own)]))


def session_sides(definition: AgentDefinition, models: Callable[[AgentDefinition], list[str]]) -> Sides | None:
    """The sides of a new session of this agent; `models` chooses the models of one side from its view of the
    definition. None if the agent uses the short form."""
    views = {name: definition.for_side(name) for name in SIDES if not definition.side(name).human}
    immediate = [name for name, view in views.items() if any(tool.immediate for tool in view.subagent_tools)]
    hooked = [name for name, view in views.items() if view.hooks]
    if definition.side_a is None and definition.side_b is None and not immediate and not hooked:
        return None
    return Sides(
        a=definition.side("a"),
        b=definition.side("b"),
        models={name: models(view) for name, view in views.items()},
        max_session_turns=definition.max_session_turns,
        immediate=immediate,
        hooked=hooked,
    )


# The names of an agent's own tools, and which of them a tool that the caller brings cannot have.


# The only place outside the tools that lists their names: for processes that do not load the tools. A test compares
# each list with what the tools declare about themselves.
ASKING = frozenset({"ask_user"})
PLANNING = frozenset({"update_plan"})
DELEGATING = frozenset(
    (
        *("delegate", "task", "async_delegate", "async_task", "async_task_result", "gather"),
        *("steer_subagent", "cancel_subagent", "list_subagents"),
    )
)
ADDRESSING = frozenset({"subagent_create", "subagent_message", "subagent_terminate"})
HAVE_OWN_EVENT = frozenset({"update_plan", "report_progress"})  # their calls are shown by their own events


def own_tools(agent: AgentDefinition, *, may_ask: bool, plans: bool) -> set[str]:
    """`plans`: whether the task's plan must be approved."""
    found = {*(ASKING if may_ask else ()), *list_reserved_names(agent, plans=plans)}
    for view in agent.views:
        found |= {*view.tools, *(DELEGATING if view.subagents else ())}
        found |= {*(ADDRESSING if any(tool.resumable for tool in view.subagent_tools) else ())}
    return found


def list_reserved_names(agent: AgentDefinition, *, plans: bool) -> set[str]:
    """The names that a caller's tool cannot have: those of the agent's own parts, and of the tools that the task's
    rules depend on. Every other tool of the platform gives way to the caller's."""
    found = {*(PLANNING if plans else ()), *(name for name, *_ in list_pinned_tools(agent.mcp_servers))}
    for view in agent.views:
        found |= {*view.handoffs, *(tool.name for tool in view.declared_tools)}
        found |= {tool.name for tool in view.subagent_tools}
    for side in (agent.side(name) for name in SIDES):
        found |= {*([side.stop_tool] if side.stop_tool else ()), *(one.name for one in side.bindings().values())}
    return found
