"""An agent definition, as people edit it: a Markdown file with these fields as YAML front matter, then the prompt."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from domain.conversations.mailbox import DeliveryMode
from domain.external_tool import MAX_TOOLS, ExternalTool
from domain.policy.rules import Rule

AGENT_NAME_PATTERN = r"^[a-z][a-z0-9-]{0,62}$"
AgentName = Annotated[str, Field(pattern=AGENT_NAME_PATTERN)]


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


class SubagentRef(BaseModel):
    """A subagent that an agent may delegate to. In a file the bare name is enough."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent: AgentName
    delivery: DeliveryMode | None = None  # of its outcomes; None: the default of the tool that starts it
    may_ask: bool = False  # may it ask people although it runs in the background


def _by_name(value: Any) -> Any:
    return {"agent": value} if isinstance(value, str) else value


VariableName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$")]


class Variable(BaseModel):
    """A value the agent needs before it can start. In a file the bare description is enough."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: str = Field(min_length=1, max_length=500)
    required: bool = True


def _by_description(value: Any) -> Any:
    return {"description": value} if isinstance(value, str) else value


class AgentDefinition(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: AgentName
    description: str = Field(min_length=1, max_length=2_000)
    mode: Mode = Mode.ALL
    model: str | None = Field(default=None, min_length=1, max_length=200)  # None: the parent's, else the default
    fallback_models: list[str] = Field(default_factory=list, max_length=5)
    tools: list[str] = Field(default_factory=list, max_length=64)
    subagents: list[Annotated[SubagentRef, BeforeValidator(_by_name)]] = Field(default_factory=list, max_length=64)
    max_depth: int | None = Field(default=None, ge=1, le=10)  # of nested subagents; None: the platform's default
    permissions: list[Rule] = Field(default_factory=list, max_length=200)
    may_ask: bool = False  # may it ask people and wait for an answer; if not, it has no ask_user
    limits: AgentLimits = AgentLimits()
    input_schema: dict[str, Any] | None = None
    external_tools: list[ExternalTool] = Field(default_factory=list, max_length=MAX_TOOLS)  # answered by the caller
    variables: dict[VariableName, Annotated[Variable, BeforeValidator(_by_description)]] = Field(
        default_factory=dict, max_length=50
    )
    output_schema: dict[str, Any] | None = None  # JSON schema of its final answer
    max_tokens: int = Field(default=8_192, ge=1, le=128_000)  # of one reply
    thinking_tokens: int | None = Field(default=None, ge=1_024, le=64_000)
    network: bool = False  # may `bash` reach the network
    prompt: str = Field(min_length=1, max_length=100_000)

    def subagent(self, name: str) -> SubagentRef | None:
        return next((ref for ref in self.subagents if ref.agent == name), None)
