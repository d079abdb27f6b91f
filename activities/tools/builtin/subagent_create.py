"""The tool subagent_create: an instance of a subagent that stays, and can be sent further messages."""

from pydantic import BaseModel, ConfigDict, Field, model_validator

from activities.tools.tool import BEGIN_DELEGATIONS, Tool
from domain.json_object import JsonObject
from domain.policy.subjects import Subject
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    agent: str = Field(min_length=1, max_length=63, description="Which agent it is.")
    name: str = Field(min_length=1, max_length=63, description="What you call this instance.")
    message: str | None = Field(None, min_length=1, max_length=100_000, description="Its first task.")
    arguments: JsonObject | None = Field(None, description="Instead of a message, for an agent that lists some.")
    attachments: list[str] = Field(
        default_factory=list, max_length=20, description="Paths of files of yours that it gets a copy of."
    )

    @model_validator(mode="after")
    def _has_a_task(self) -> "Input":
        if (self.message is None) == (self.arguments is None):
            raise ValueError("give either a message or arguments")
        return self


TOOL = Tool(
    name="subagent_create",
    description=(
        "Create an instance of a subagent under a name of your choice. It stays when its task is done: send it further "
        "messages with subagent_message instead of creating another one."
    ),
    input=Input,
    activity=BEGIN_DELEGATIONS,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    starts=True,
    addresses=True,
    touches=(),
    subject=Subject(fields=("agent",)),
    summary=lambda input: f"{input.name} ({input.agent}): {input.message or input.arguments}",
)
