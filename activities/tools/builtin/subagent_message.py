"""The tool subagent_message: a further message to an instance of a subagent."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import BEGIN_DELEGATIONS, Tool
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    target: str = Field(min_length=1, max_length=64, description="The instance: its reference or its name.")
    message: str = Field(min_length=1, max_length=100_000, description="What it should know or do.")
    attachments: list[str] = Field(
        default_factory=list, max_length=20, description="Paths of files of yours that it gets a copy of."
    )


TOOL = Tool(
    name="subagent_message",
    description="Send a message to an instance of a subagent. If it is working, it reads it before its next step.",
    input=Input,
    activity=BEGIN_DELEGATIONS,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    starts=True,
    addresses=True,
    touches=(),
    summary=lambda input: f"{input.target}: {input.message}",
)
