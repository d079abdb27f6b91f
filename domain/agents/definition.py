"""An agent definition, as people edit it: a Markdown file with these fields as YAML front matter, then the prompt.

An agent has two sides. Most agents are the short form: a model with the file's own text on side A, people on side B.
"""

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from domain.agents.mcp_server import McpServers
from domain.agents.names import AGENT_NAME_PATTERN, AgentName, VariableName
from domain.agents.prompt import Equipment, PromptDefinition, SubagentRef, Variable, tools_by_kind
from domain.agents.side import Side, SideKind, side_from_word
from domain.agents.spelling import AgentPart
from domain.external_tool import MAX_TOOLS, ExternalTool
from domain.json_object import JsonObject
from domain.policy.rules import PlatformToolRule, Rule
from domain.sessions.session import SIDES, SideName

__all__ = [
    "AGENT_NAME_PATTERN",
    "AgentDefinition",
    "AgentLimits",
    "AgentName",
    "Mode",
    "SubagentRef",
    "Variable",
    "VariableName",
]

HostPattern = Annotated[str, Field(pattern=r"^[a-z0-9.:*?-]{1,253}$")]  # lower case; * and ? match anything

_UNNAMED, _PEOPLE = Side(), Side(human=True)  # what the short form leaves out

_PACKAGING = ("package_name", "packageName", "version", "author", "license")


class Mode(StrEnum):
    PRIMARY = "primary"  # only callers start it
    SUBAGENT = "subagent"  # only other agents start it
    ALL = "all"


class AgentLimits(BaseModel):
    """Default limits of this agent's sessions. A task may ask for less, or for more up to the platform's ceilings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
    external_tools: list[ExternalTool] = Field(default_factory=list, max_length=MAX_TOOLS)  # answered by the caller
    # left out where there are none, so that a definition without them is the same text as before there were any
    mcp_servers: McpServers = Field(default_factory=dict, exclude_if=lambda value: not value)
    # the hosts of MCP servers that a task may bring; none by default
    task_mcp_hosts: list[HostPattern] = Field(default_factory=list, max_length=50, exclude_if=lambda value: not value)
    output_schema: JsonObject | None = None  # JSON schema of its final answer
    max_tokens: int = Field(default=8_192, ge=1, le=128_000)  # longest reply
    # the text of a reply is sent once it is complete, so that nobody is shown one that broke off
    whole_replies: bool = Field(default=False, exclude_if=lambda value: not value)
    network: bool = False  # commands may use the network if the operator allows it
    network_hosts: list[HostPattern] | None = Field(default=None, max_length=100)  # None: any public host
    prompt: str = Field(default="", max_length=100_000)  # the short form's text

    @classmethod
    def normalised(cls, fields: JsonObject) -> JsonObject:
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
        brought = {tool.name for tool in self.external_tools}
        return [
            rule
            if rule.permission in brought or {*"*?"} & {*rule.permission}
            else PlatformToolRule.model_construct(**dict(rule))
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
