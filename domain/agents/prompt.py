"""A prompt: the text that one side of an agent follows, with its model, tools, subagents, hooks and variables."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from domain.agents.names import AgentName, HookName, ModelName, VariableName
from domain.agents.side import PromptName
from domain.agents.spelling import AgentPart
from domain.agents.subagent_tool import SubagentTool
from domain.external_tool import ExternalTool
from domain.json_object import JsonObject
from domain.sessions.session import DeliveryMode


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
    def normalised(cls, fields: JsonObject) -> JsonObject:
        return tools_by_kind(fields)
